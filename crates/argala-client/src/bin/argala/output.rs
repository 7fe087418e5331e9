//! Writing results: text for people, JSON for scripts. Results go to standard output; what went
//! wrong, and what should be known beside the result, to standard error.

use std::{
    fmt,
    io::{self, IsTerminal, Write},
};

use argala_client::{Error, Event};
use argala_wire::devices::DeviceRef;
use serde_json::{Value, json};

use crate::{args::Format, exit::Failure};

/// Where results go.
pub(crate) struct Output {
    format: Format,
}

impl Output {
    pub(crate) fn new(format: Format) -> Self {
        Self { format }
    }

    /// Whether a person is looking on.
    pub(crate) fn has_terminal(&self) -> bool {
        self.format == Format::Text && io::stderr().is_terminal()
    }

    /// Writes a result, in the one form or the other.
    pub(crate) fn result(
        &self,
        json: impl FnOnce() -> Value,
        text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        match self.format {
            Format::Json => writeln!(out, "{}", json())?,
            Format::Text => text(&mut out)?,
        }
        Ok(out.flush()?)
    }

    /// Writes a part of a result that has several; in JSON they go with the whole.
    pub(crate) fn result_page(
        &self,
        text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Failure> {
        if self.format == Format::Text {
            let mut out = io::stdout().lock();
            text(&mut out)?;
            out.flush()?;
        }
        Ok(())
    }

    /// Tells of a failure that does not end the command.
    pub(crate) fn failed(&self, why: &Failure) {
        failure(self.format, why);
    }

    /// Writes a remark for people; scripts have the result.
    pub(crate) fn remark(&self, text: fmt::Arguments<'_>) {
        if self.format == Format::Text {
            complain(&text);
        }
    }
}

/// Writes to standard error. That it is closed is no reason to stop.
fn complain(text: &dyn fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// `member/device`, as people read it.
pub(crate) fn name(device: &DeviceRef) -> String {
    printable(&format!("{}/{}", device.member_id, device.device_id))
}

/// A name that somebody else chose, without what would make a terminal do things.
pub(crate) fn printable(text: &str) -> String {
    let harmless = |c: char| {
        !c.is_control() && !matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars()
        .map(|c| if harmless(c) { c } else { '\u{fffd}' })
        .collect()
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Tells of something that a session noticed.
pub(crate) fn event(format: Format, event: &Event) {
    match format {
        Format::Text => {
            complain(&format_args!("argala: {event}"));
            if let Event::WrapHeld { graph, .. } = event {
                complain(&format_args!(
                    "argala: argala devices {graph} --former lists it, on the roster or not"
                ));
            }
        }
        Format::Json => {
            let mut value = json!({ "event": event.name(), "message": event.to_string() });
            let (graph, device) = match event {
                Event::KeysBehind { graph }
                | Event::EpochWentBack { graph, .. }
                | Event::StartedOver { graph, .. } => (Some(graph), None),
                Event::RecordRejected { graph, why } => {
                    value["reason"] = why.as_str().into();
                    (Some(graph), None)
                }
                Event::WrapRejected { graph, by, .. } | Event::WrapHeld { graph, by, .. } => {
                    (Some(graph), Some(by))
                }
                Event::DeviceNew {
                    device,
                    fingerprint,
                } => {
                    value["fingerprint"] = fingerprint.to_string().into();
                    (None, Some(device))
                }
                Event::DeviceChanged { device } | Event::DeviceReturned { device } => {
                    (None, Some(device))
                }
                _ => (None, None),
            };
            if let Some(graph) = graph {
                value["graphId"] = graph.as_str().into();
            }
            if let Some(device) = device {
                value["device"] = json!(device);
            }
            complain(&value);
        }
    }
}

/// What an error is to a script.
pub(crate) fn error_value(error: &Error) -> Value {
    let mut value = json!({ "message": error.to_string() });
    if let Some(problem) = error.problem() {
        value["problem"] = json!(problem);
    }
    if let Error::KeysChanged(devices) | Error::Returned(devices) | Error::Unlisted(devices) = error
    {
        value["devices"] = json!(devices);
    }
    value
}

/// Tells why a command did not come about.
pub(crate) fn failure(format: Format, failure: &Failure) {
    match (format, failure) {
        // Whoever reads the output has gone, and wants no more.
        (_, Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {}
        (Format::Text, _) => complain(&format_args!("argala: {failure}")),
        (Format::Json, Failure::Client(error)) => {
            complain(&json!({ "error": error_value(error) }));
        }
        (Format::Json, _) => complain(&json!({ "error": { "message": failure.to_string() } })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_moves_the_cursor_or_turns_the_text_around() {
        let device = DeviceRef {
            member_id: "sam".parse().expect("legal"),
            device_id: "lap\u{202e}top".parse().expect("legal"),
        };
        assert_eq!(name(&device), "sam/lap\u{fffd}top");
        assert_eq!(printable("lap\u{1b}[2K\r"), "lap\u{fffd}[2K\u{fffd}");
    }
}
