//! What an operator's commands print, with a log at trace level beside it.

use std::path::Path;

use super::planted::{Search, Sort};
use crate::process::run;

/// Asks everything that prints, beside the running relay, and searches it.
pub(super) fn asks(folder: &Path, search: &Search<'_>) {
    let commands: [(&[&str], &[Sort]); 12] = [
        (&["config", "print"], &[]),
        (&["config", "check"], &[]),
        (&["admin", "member", "list"], &[]),
        (&["admin", "group", "list"], &[]),
        // The same that `GET /devices` tells.
        (
            &["admin", "device", "list", "--member", "sam"],
            &[Sort::Label],
        ),
        (&["admin", "device", "list", "--member", "who"], &[]),
        (&["admin", "graph", "show", "g:acme"], &[]),
        (&["admin", "graph", "usage", "g:acme"], &[]),
        (&["admin", "recount"], &[]),
        (&["admin", "erase", "member", "sam", "--dry-run"], &[]),
        (&["admin", "erase", "graph", "g:acme", "--dry-run"], &[]),
        (&["admin", "erase", "graph", "g:none"], &[]),
    ];
    for (command, may) in commands {
        // For people there are no bytes in it.
        for (output, may) in [("text", &[][..]), ("json", may)] {
            let command = [command, &["--output", output]].concat();
            said(folder, &command, may, search);
        }
    }
    let minting = [
        "admin",
        "token",
        "mint",
        "--member",
        "sam",
        "--device",
        "sams-laptop",
    ];
    let token = said(folder, &minting, &[Sort::Nowhere], search);
    assert_eq!(token.trim().split('.').count(), 3, "a token alone: {token}");
}

/// Changes what cannot be changed back, with nobody serving, and searches what is said of it.
pub(super) fn ends(folder: &Path, search: &Search<'_>) {
    for command in [
        &[
            "admin",
            "device",
            "revoke",
            "--member",
            "sam",
            "--device",
            "sams-laptop",
        ][..],
        &["admin", "restored"],
        &["admin", "erase", "member", "sam"],
        &["admin", "erase", "graph", "g:acme"],
    ] {
        said(folder, command, &[], search);
    }
}

/// What a command prints, which holds nothing but what is of these sorts; its log holds nothing.
fn said(folder: &Path, command: &[&str], may: &[Sort], search: &Search<'_>) -> String {
    let output = run(&[command, &["--config", "relay.toml"]].concat(), folder);
    let place = command.join(" ");
    search.holds_only(may, &output.stdout, &place);
    search.holds_only(&[], &output.stderr, &format!("the log of {place}"));
    String::from_utf8(output.stdout).unwrap()
}
