//! What may happen in a case: small numbers and choices, so that a failing case shrinks. What a
//! number means is decided when its turn comes, by what there is then: that way most requests are
//! good ones, whatever came before, and a part is wrong on purpose.

use proptest::{collection::vec, prelude::*, sample::select};

use super::{call::Form, call::Slip};

/// One step of a case.
#[derive(Debug, Clone)]
pub(super) enum Op {
    /// A device asks something.
    Ask(Who, What, Manner),
    /// A request that changed something, or was to, comes once more, byte for byte.
    Again(u8),
    /// The directory changes.
    Directory(Change),
    /// Time passes.
    Wait(u8),
    /// The pass that forgets what is due.
    Sweep,
    /// A group loses everybody, and a month goes by with a sweep on each day.
    Month(u8),
    /// Three months go by, for which tombstones are kept, and then the sweep comes round.
    Season,
    /// All who may fetch a blob, and then the sweep comes round.
    Fetch(u8),
    /// An operator erases.
    Erase(Gone),
}

/// Who asks: one of the devices that may, or of all there could be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Who {
    pub(super) any: bool,
    pub(super) n: u8,
}

/// Which graph: one that has a key and that the caller may use, or any address.
#[derive(Debug, Clone, Copy)]
pub(super) struct Where {
    pub(super) any: bool,
    pub(super) n: u8,
}

/// In which forms, and what is wrong with it as HTTP.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    pub(super) form: Form,
    pub(super) accept: Form,
    pub(super) slip: Slip,
    /// How the media types are spelt.
    pub(super) spelling: u8,
}

#[derive(Debug, Clone)]
pub(super) enum What {
    Register {
        other_keys: bool,
        recovery: bool,
        label: u8,
        fault: u8,
    },
    Devices(Turn),
    Revoke {
        n: u8,
        any: bool,
    },
    Graphs(Turn),
    Graph(Where),
    GraphDevices(Where, u8, Turn),
    Wraps(Where, u8, Turn),
    Rotate {
        at: Where,
        epoch: Nearby,
        roster: Roster,
        content: u8,
    },
    Grant(Where, Vec<Given>, Size),
    Push(Where, Pushing),
    Pull {
        at: Where,
        turn: Turn,
        epoch: u8,
        known: u8,
    },
    PutBlob {
        at: Where,
        blob: u8,
        content: u8,
        policy: u8,
        ttl: u8,
        digest: u8,
        length: u8,
    },
    GetBlob {
        at: Where,
        blob: u8,
        head: bool,
        range: u8,
        known: u8,
    },
    DeleteBlob(Where, u8),
    Limits,
}

/// Which page of a list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    pub(super) cursor: Spot,
    pub(super) limit: u8,
}

/// Which cursor.
#[derive(Debug, Clone, Copy)]
pub(super) enum Spot {
    Start,
    /// The newest one of this list.
    Last,
    /// An older one of this list.
    Older(u8),
    /// Any that was ever given out.
    Any(u8),
    /// One with a letter changed.
    Mangled(u8),
    Empty,
    Garbage,
}

/// An epoch, told from the current one.
#[derive(Debug, Clone, Copy)]
pub(super) enum Nearby {
    Current,
    Next,
    Previous,
    AfterNext,
    Zero,
    Greatest,
}

/// For which devices a rotate has wraps.
#[derive(Debug, Clone, Copy)]
pub(super) enum Roster {
    Whole,
    Without(u8),
    With(u8),
    Swapped(u8),
    Twice,
    EmptyWrap,
    LongWrap,
}

/// How long the last wrap of a grant is, and how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    Usual,
    Empty,
    Longest,
    TooLong,
    /// The first target comes once more.
    Twice,
    /// One wrap more than a body may have.
    TooMany,
}

/// One wrap of a grant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Given {
    /// One of those who are owed one, or any.
    pub(super) any: bool,
    pub(super) n: u8,
    pub(super) epoch: u8,
    pub(super) content: u8,
}

#[derive(Debug, Clone)]
pub(super) struct Pushing {
    pub(super) start: u8,
    pub(super) records: Vec<Item>,
    pub(super) if_head: u8,
    pub(super) atomic: bool,
    /// The idempotency key; 0 is none, the last ones are malformed.
    pub(super) key: u8,
    /// The last record has the id of the first.
    pub(super) twice: bool,
}

/// One record of a push.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    pub(super) epoch: Nearby,
    pub(super) content: u8,
    pub(super) deleted: bool,
    pub(super) sig: u8,
    pub(super) expect: u8,
    /// As the record is already, where it is.
    pub(super) same: bool,
    /// Not its usual id, but one that is hardly one, or none.
    pub(super) name: Option<u8>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Change {
    Member { n: u8, to: Option<bool> },
    Join { group: u8, n: u8 },
    Leave { group: u8, n: u8 },
}

/// What an operator erases.
#[derive(Debug, Clone, Copy)]
pub(super) enum Gone {
    /// A member, who stays in the directory's groups or leaves them.
    Member { n: u8, leaves: bool },
    /// A graph that there is; cut off after so many steps.
    Graph { n: u8, steps: Option<u8> },
}

/// 0 most of the time, and else below `n`.
fn rarely(n: u8) -> impl Strategy<Value = u8> {
    prop_oneof![6 => Just(0), 2 => 0..n]
}

fn yes(percent: u32) -> impl Strategy<Value = bool> {
    prop_oneof![100 - percent => Just(false), percent => Just(true)]
}

fn who() -> impl Strategy<Value = Who> {
    (yes(4), 0..9_u8).prop_map(|(any, n)| Who { any, n })
}

fn at() -> impl Strategy<Value = Where> {
    let n = prop_oneof![6 => Just(0_u8), 4 => 0..8_u8];
    (yes(6), n).prop_map(|(any, n)| Where { any, n })
}

fn anywhere() -> impl Strategy<Value = Where> {
    let n = prop_oneof![5 => Just(0_u8), 4 => 0..8_u8];
    (yes(40), n).prop_map(|(any, n)| Where { any, n })
}

fn turn() -> impl Strategy<Value = Turn> {
    let cursor = prop_oneof![
        20 => Just(Spot::Start),
        14 => Just(Spot::Last),
        4 => any::<u8>().prop_map(Spot::Older),
        2 => any::<u8>().prop_map(Spot::Any),
        1 => any::<u8>().prop_map(Spot::Mangled),
        1 => Just(Spot::Empty),
        1 => Just(Spot::Garbage),
    ];
    let limit = prop_oneof![10 => Just(0_u8), 12 => 1..4_u8, 2 => 4..9_u8];
    (cursor, limit).prop_map(|(cursor, limit)| Turn { cursor, limit })
}

fn nearby(usual: Nearby) -> impl Strategy<Value = Nearby> {
    let others = vec![
        Nearby::Current,
        Nearby::Next,
        Nearby::Previous,
        Nearby::AfterNext,
        Nearby::Zero,
        Nearby::Greatest,
    ];
    prop_oneof![12 => Just(usual), 2 => select(others)]
}

fn roster() -> impl Strategy<Value = Roster> {
    prop_oneof![
        14 => Just(Roster::Whole),
        1 => any::<u8>().prop_map(Roster::Without),
        1 => any::<u8>().prop_map(Roster::With),
        1 => any::<u8>().prop_map(Roster::Swapped),
        1 => select(vec![Roster::Twice, Roster::EmptyWrap, Roster::LongWrap]),
    ]
}

fn given() -> impl Strategy<Value = Given> {
    (yes(25), any::<u8>(), 0..7_u8, 0..3_u8).prop_map(|(any, n, epoch, content)| Given {
        any,
        n,
        epoch,
        content,
    })
}

fn size() -> impl Strategy<Value = Size> {
    // Too many are another matter: they are megabytes.
    let others = vec![Size::Empty, Size::Longest, Size::TooLong, Size::Twice];
    prop_oneof![16 => Just(Size::Usual), 1 => select(others)]
}

fn item() -> impl Strategy<Value = Item> {
    (
        nearby(Nearby::Current),
        prop_oneof![16 => 0..6_u8, 1 => Just(6_u8), 1 => Just(7_u8)],
        yes(30),
        prop_oneof![12 => Just(0_u8), 1 => 0..11_u8],
        prop_oneof![8 => Just(0_u8), 2 => 0..5_u8],
        yes(15),
        prop_oneof![60 => Just(None), 3 => (0..3_u8).prop_map(Some), 1 => (3..9_u8).prop_map(Some)],
    )
        .prop_map(|(epoch, content, deleted, sig, expect, same, name)| Item {
            epoch,
            content,
            deleted,
            sig,
            expect,
            same,
            name,
        })
}

fn pushing() -> impl Strategy<Value = Pushing> {
    let key = prop_oneof![24 => Just(0_u8), 16 => 1..4_u8, 1 => 4..6_u8, 2 => 6..12_u8];
    (
        0..7_u8,
        prop_oneof![20 => vec(item(), 0..=5), 1 => vec(item(), 6)],
        prop_oneof![8 => Just(0_u8), 2 => 1..4_u8],
        yes(20),
        key,
        yes(3),
    )
        .prop_map(|(start, records, if_head, atomic, key, twice)| Pushing {
            start,
            records,
            if_head,
            atomic,
            key,
            twice,
        })
}

/// One of the blobs, now and then by an id that is none.
fn some_blob() -> impl Strategy<Value = u8> {
    prop_oneof![10 => Just(0_u8), 20 => 1..4_u8, 1 => Just(4_u8)]
}

fn put_blob() -> impl Strategy<Value = What> {
    (
        at(),
        some_blob(),
        prop_oneof![12 => 0..5_u8, 1 => Just(5_u8), 1 => Just(6_u8)],
        prop_oneof![24 => 0..4_u8, 1 => Just(4_u8)],
        prop_oneof![14 => Just(0_u8), 2 => 1..8_u8],
        prop_oneof![14 => Just(0_u8), 3 => 1..4_u8, 2 => 4..12_u8],
        prop_oneof![24 => Just(0_u8), 3 => 1..4_u8],
    )
        .prop_map(
            |(at, blob, content, policy, ttl, digest, length)| What::PutBlob {
                at,
                blob,
                content,
                policy,
                ttl,
                digest,
                length,
            },
        )
}

fn what() -> impl Strategy<Value = What> {
    let register =
        (yes(10), yes(10), 0..4_u8, rarely(6)).prop_map(|(other_keys, recovery, label, fault)| {
            What::Register {
                other_keys,
                recovery,
                label,
                fault,
            }
        });
    let epoch = prop_oneof![7 => nearby(Nearby::Next), 1 => Just(Nearby::Current)];
    let rotate =
        (anywhere(), epoch, roster(), rarely(2)).prop_map(|(at, epoch, roster, content)| {
            What::Rotate {
                at,
                epoch,
                roster,
                content,
            }
        });
    let pull = (
        at(),
        turn(),
        rarely(7),
        prop_oneof![5 => Just(0_u8), 4 => 1..6_u8],
    )
        .prop_map(|(at, turn, epoch, known)| What::Pull {
            at,
            turn,
            epoch,
            known,
        });
    let get_blob = (
        at(),
        some_blob(),
        yes(25),
        prop_oneof![
            8 => Just(0_u8),
            6 => 0..17_u8,
            1 => select(vec![4_u8, 6, 16]),
            2 => 17..51_u8,
        ],
        rarely(7),
    )
        .prop_map(|(at, blob, head, range, known)| What::GetBlob {
            at,
            blob,
            head,
            range,
            known,
        });
    prop_oneof![
        4 => turn().prop_map(What::Devices),
        2 => (any::<u8>(), yes(25)).prop_map(|(n, any)| What::Revoke { n, any }),
        6 => turn().prop_map(What::Graphs),
        6 => at().prop_map(What::Graph),
        5 => (at(), 0..8_u8, turn()).prop_map(|(at, revoked, turn)| What::GraphDevices(at, revoked, turn)),
        5 => (at(), rarely(6), turn()).prop_map(|(at, after, turn)| What::Wraps(at, after, turn)),
        10 => rotate,
        9 => (at(), vec(given(), 0..4), size())
            .prop_map(|(at, given, size)| What::Grant(at, given, size)),
        26 => (at(), pushing()).prop_map(|(at, pushing)| What::Push(at, pushing)),
        16 => pull,
        9 => put_blob(),
        9 => get_blob,
        2 => (at(), some_blob()).prop_map(|(at, blob)| What::DeleteBlob(at, blob)),
        1 => Just(What::Limits),
        5 => register,
    ]
}

fn manner() -> impl Strategy<Value = Manner> {
    let form = || prop_oneof![Just(Form::Json), Just(Form::Cbor)];
    let slips = vec![
        Slip::NoCredential,
        Slip::Accept,
        Slip::ContentType,
        Slip::Parameter,
        Slip::Field,
        Slip::Twice,
        Slip::Cut,
        Slip::Trailing,
        Slip::Failing,
    ];
    let slip = prop_oneof![30 => Just(Slip::None), 1 => select(slips)];
    (form(), form(), slip, rarely(8)).prop_map(|(form, accept, slip, spelling)| Manner {
        form,
        accept,
        slip,
        spelling,
    })
}

fn change() -> impl Strategy<Value = Change> {
    let to = prop_oneof![5 => Just(Some(true)), 2 => Just(Some(false)), 1 => Just(None)];
    prop_oneof![
        4 => (0..3_u8, to).prop_map(|(n, to)| Change::Member { n, to }),
        4 => (0..2_u8, 0..3_u8).prop_map(|(group, n)| Change::Join { group, n }),
        2 => (0..2_u8, 0..3_u8).prop_map(|(group, n)| Change::Leave { group, n }),
    ]
}

fn gone() -> impl Strategy<Value = Gone> {
    let steps = prop_oneof![2 => Just(None), 2 => Just(Some(0)), 1 => (1..5_u8).prop_map(Some)];
    prop_oneof![
        3 => (0..3_u8, yes(60)).prop_map(|(n, leaves)| Gone::Member { n, leaves }),
        2 => (0..8_u8, steps).prop_map(|(n, steps)| Gone::Graph { n, steps }),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    // Whoever registers need not be there yet.
    let ask = (who(), what(), manner()).prop_map(|(mut who, what, manner)| {
        who.any |= matches!(what, What::Register { .. });
        Op::Ask(who, what, manner)
    });
    prop_oneof![
        320 => ask,
        28 => any::<u8>().prop_map(Op::Again),
        20 => change().prop_map(Op::Directory),
        24 => (0..8_u8).prop_map(Op::Wait),
        4 => Just(Op::Season),
        12 => Just(Op::Sweep),
        1 => (0..2_u8).prop_map(Op::Month),
        4 => any::<u8>().prop_map(Op::Fetch),
        12 => gone().prop_map(Op::Erase),
    ]
}

/// The steps of a case.
pub(super) fn ops(most: usize) -> impl Strategy<Value = Vec<Op>> {
    vec(op(), 1..most)
}
