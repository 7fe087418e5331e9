//! What devices say of themselves and put into a graph, planted in all its parts.

use argala_client::{
    Kind,
    crypto::{
        GraphKey,
        blob::{BlobContext, NonceDigest, Sealer},
        record::{self, RecordCipher},
    },
};
use argala_wire::{BlobId, StorageKey, codec::Format, devices::DeviceKind, records::PushRecord};

use super::{
    planted::{Garden, Sort},
    stage::{Actor, Ask, Stage},
};

/// Where the group's graph is.
pub(super) const ACME: &str = "/graphs/g%3Aacme";

/// The graph of the group, with the keys of its epochs.
pub(super) struct Group {
    pub(super) key: StorageKey,
    pub(super) graph_key: GraphKey,
    kind: Kind,
}

impl Group {
    /// The group's, with a first key, which is planted.
    pub(super) fn new(garden: &mut Garden) -> Self {
        let graph_key = GraphKey::generate();
        garden.plant(Sort::Nowhere, "the graph's key", graph_key.as_bytes());
        Self {
            key: "g:acme".parse().unwrap(),
            graph_key,
            kind: Kind::new("text").unwrap(),
        }
    }

    /// A sealed and signed record, planted in all its parts.
    pub(super) fn record(
        &self,
        garden: &mut Garden,
        by: &Actor,
        id: &str,
        text: &str,
    ) -> PushRecord {
        let id = id.parse().unwrap();
        let cipher = RecordCipher::new(&self.graph_key, &self.key, 1);
        let sealed = cipher.seal(&id, false, &self.kind, 1, text.as_bytes());
        let sig = by.keys.sign_record(&self.key, 1, &id, false, &sealed);
        garden.plant(
            Sort::RecordId,
            format!("record id {id}"),
            id.as_str().as_bytes(),
        );
        garden.plant(Sort::Ciphertext, format!("ciphertext of {id}"), &sealed);
        garden.plant(
            Sort::Signature,
            format!("signature of {id}"),
            sig.as_slice(),
        );
        garden.plant(Sort::Nowhere, format!("plaintext of {id}"), text.as_bytes());
        PushRecord {
            id,
            epoch: 1,
            ciphertext: sealed.as_slice().into(),
            sig: Some(sig),
            deleted: false,
            expect: None,
        }
    }

    /// A sealed file, planted with its id.
    pub(super) fn blob(&self, garden: &mut Garden, id: &str, plain: &[u8]) -> Vec<u8> {
        let blob: BlobId = id.parse().unwrap();
        let context = BlobContext {
            graph: &self.key,
            epoch: 1,
            blob: &blob,
        };
        let mut digest = NonceDigest::new(&self.graph_key, &context);
        digest.update(plain);
        let mut sealer = Sealer::new(&self.graph_key, &context, digest.finish());
        let mut sealed = sealer.header().to_vec();
        sealed.extend(sealer.chunk(plain, true));
        garden.plant(Sort::Nowhere, format!("plaintext of {id}"), plain);
        garden.plant(Sort::Bytes, format!("bytes of {id}"), &sealed);
        garden.plant(Sort::BlobId, format!("blob id {id}"), id.as_bytes());
        sealed
    }
}

/// Registers a device under a sealed name.
pub(super) fn register(stage: &Stage, garden: &mut Garden, who: &Actor, form: Format) {
    registration(stage, garden, who, form).is(201);
}

/// The request to register a device under a sealed name, both planted.
pub(super) fn registration<'a>(
    stage: &'a Stage,
    garden: &mut Garden,
    who: &'a Actor,
    form: Format,
) -> Ask<'a> {
    let own = StorageKey::own(&who.of.member_id);
    let name = format!("the name that {} has of its own", who.of.device_id);
    let label = record::seal_label(&GraphKey::generate(), &own, 1, &name);
    let about = &who.of.device_id;
    garden.plant(Sort::Nowhere, format!("name of {about}"), name.as_bytes());
    garden.plant(Sort::Label, format!("sealed name of {about}"), &label);
    let body = who
        .keys
        .registration(&who.of, DeviceKind::Device, Some(label.as_slice().into()));
    garden.plant(
        Sort::Nowhere,
        format!("proof of {about}"),
        body.proof.as_slice(),
    );
    stage.ask(who, "POST", "/devices").body(form, &body)
}
