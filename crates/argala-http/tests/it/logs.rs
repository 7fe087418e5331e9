//! What a request leaves in the log: one line, and no id of anything.

use std::{cell::RefCell, io::Write, sync::Once};

use argala_wire::Code;
use http::StatusCode;
use serde_json::Value;

use crate::world::{World, noise, of};

thread_local! {
    /// What the test on this thread has logged, once it listens.
    static LOGGED: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Where every test of this program logs to: whether a line is worth making is decided for all
/// threads at once, so that a subscriber of one thread would miss lines by chance.
struct ThisThread;

impl Write for ThisThread {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOGGED.with_borrow_mut(|logged| {
            if let Some(logged) = logged {
                logged.extend_from_slice(bytes);
            }
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing_subscriber::fmt()
            .json()
            .with_max_level(tracing::Level::TRACE)
            .with_writer(|| ThisThread)
            .init();
    });
    LOGGED.set(Some(Vec::new()));
}

/// What has been logged since the last time, as text and line by line.
fn heard() -> (String, Vec<Value>) {
    let bytes = LOGGED.replace(Some(Vec::new())).expect("listening");
    let text = String::from_utf8(bytes).expect("UTF-8");
    let lines = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let lines = lines.collect();
    (text, lines)
}

/// Lines of our own crate; those of others say nothing about requests.
fn ours(lines: &[Value]) -> Vec<&Value> {
    let ours = |line: &&Value| {
        line["target"]
            .as_str()
            .is_some_and(|target| target.starts_with("argala_http"))
    };
    lines.iter().filter(ours).collect()
}

#[tokio::test]
async fn one_line_a_request_and_no_ids() {
    listen();
    let world = World::new();
    let laptop = world.device("sam", "a-very-own-laptop").await;
    world.rotate("d:sam", 1, &[&laptop]).await;
    drop(heard());

    world
        .push(&laptop, "d:sam", "a-very-own-record", "a-very-own-text")
        .await;
    let (text, told) = heard();
    let told = ours(&told);
    assert_eq!(told.len(), 1, "{text}");
    let (line, span) = (&told[0]["fields"], &told[0]["span"]);
    assert_eq!(line["message"], "answered");
    assert_eq!(line["status"], 200);
    assert!(line["elapsed_ms"].is_number());
    assert_eq!(span["method"], "POST");
    assert_eq!(span["route"], "/graphs/{graphId}/push");
    assert!(span["request_id"].is_string());

    let blob = of("d:sam", "/blobs/a-very-own-blob-id?color=a-very-own-query");
    let ask = world
        .put(&laptop, &blob, noise(9))
        .header("x-request-id", "named-by-the-caller");
    let answer = ask.send().await.is(StatusCode::BAD_REQUEST);
    assert_eq!(answer.header("x-request-id"), "named-by-the-caller");
    let (text, told) = heard();
    let told = ours(&told);
    assert_eq!(told[0]["span"]["request_id"], "named-by-the-caller");
    assert_eq!(told[0]["span"]["route"], "/graphs/{graphId}/blobs/{blobId}");
    assert!(!text.contains("a-very-own"), "{text}");

    // Our fault is told once, with its cause, in the span of the request.
    world.directory.set_failing(true);
    world
        .get(&laptop, "/devices")
        .send()
        .await
        .problem(Code::Unavailable);
    let (text, told) = heard();
    let told = ours(&told);
    assert_eq!(told.len(), 2, "{text}");
    assert_eq!(told[0]["level"], "WARN");
    assert_eq!(told[0]["fields"]["cause"], "told to fail");
    assert_eq!(told[0]["span"]["route"], "/devices");
    assert_eq!(told[1]["fields"]["status"], 503);
}
