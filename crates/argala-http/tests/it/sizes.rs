//! How large bodies may be, over real connections: a byte too many is told, not cut off.

use std::time::Duration;

use argala_testkit::{PATIENCE, TestDevice};
use argala_wire::{Code, Problem, codec::Format, records::PushRequest};
use bytes::Bytes;
use futures_util::stream;
use http::StatusCode;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::{
    pokes::Served,
    world::{PREFIX, World, noise, of, pushing, rotation, storage_key},
};

const MIB: usize = 1024 * 1024;

struct Bench {
    world: World,
    served: Served,
    laptop: TestDevice,
    client: reqwest::Client,
}

async fn bench() -> Bench {
    let world = World::new();
    let served = Served::new(&world.app).await;
    let laptop = world.device("sam", "laptop").await;
    world.rotate("d:sam", 1, &[&laptop]).await;
    let client = reqwest::Client::builder()
        .no_proxy()
        .build()
        .expect("a client");
    Bench {
        world,
        served,
        laptop,
        client,
    }
}

impl Bench {
    fn ask(&self, method: http::Method, path: &str) -> reqwest::RequestBuilder {
        let ask = self.client.request(method, self.served.url(path));
        ask.header("authorization", "Dev sam/laptop")
            .timeout(PATIENCE)
    }

    async fn post(&self, path: &str, body: impl Into<reqwest::Body>) -> reqwest::Response {
        self.ask(http::Method::POST, path)
            .body(body)
            .send()
            .await
            .expect("an answer")
    }

    fn signed(&self, lengths: &[usize]) -> PushRequest {
        let key = storage_key(&self.laptop, "d:sam");
        let record = |(n, length): (usize, &usize)| {
            self.laptop
                .record(&key, &format!("record {n}"), 1, &noise(*length))
        };
        pushing(lengths.iter().enumerate().map(record).collect())
    }
}

/// `body` and white space, `length` bytes in all.
fn padded(mut body: Vec<u8>, length: usize) -> Vec<u8> {
    assert!(body.len() <= length);
    body.resize(length, b' ');
    body
}

async fn problem(answer: reqwest::Response, code: Code) -> Problem {
    assert_eq!(answer.status().as_u16(), code.status());
    let body = answer.bytes().await.expect("whole");
    let problem: Problem = Format::Json.decode_answer(&body).expect("a problem");
    assert_eq!(problem.code, code);
    problem
}

#[tokio::test]
async fn a_push_has_at_most_its_limit() {
    let bench = bench().await;
    let path = of("d:sam", "/push");
    // 7.9 MB of ciphertext, as CBOR carries it.
    let body = Format::Cbor.encode(&bench.signed(&[987_500; 8]));
    assert!(body.len() > 7_900_000 && body.len() < 8 * MIB);
    let ask = bench
        .ask(http::Method::POST, &path)
        .header("content-type", "application/cbor");
    let answer = ask.body(body).send().await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::OK);
    let told: serde_json::Value = answer.json().await.expect("JSON");
    assert_eq!(told["accepted"], 8);

    let body = Format::Json.encode(&bench.signed(&[700_000; 8]));
    let answer = bench.post(&path, padded(body.clone(), 8 * MIB)).await;
    assert_eq!(answer.status(), StatusCode::OK);
    drop(bench.world.events.take());
    let answer = bench.post(&path, padded(body, 8 * MIB + 1)).await;
    assert_eq!(
        problem(answer, Code::BodyTooLarge).await.limit,
        Some(8 * MIB as u64)
    );
    assert_eq!(bench.world.events.take_names(), ["quota.exceeded"]);
}

#[tokio::test]
async fn keys_and_all_other_bodies_have_theirs() {
    let bench = bench().await;
    let keys = Format::Json.encode(&rotation(2, &[&bench.laptop]));
    let answer = bench
        .post(&of("d:sam", "/rotate"), padded(keys.clone(), 16 * MIB))
        .await;
    assert_eq!(answer.status(), StatusCode::OK);
    let register = Format::Json.encode(&bench.laptop.register_request());
    let answer = bench
        .post("/devices", padded(register.clone(), 64 * 1024))
        .await;
    assert_eq!(answer.status(), StatusCode::OK);
    drop(bench.world.events.take());
    for (path, body, limit) in [
        (of("d:sam", "/rotate"), &keys, 16 * MIB),
        (of("d:sam", "/grant"), &keys, 16 * MIB),
        ("/devices".to_owned(), &register, 64 * 1024),
    ] {
        let answer = bench.post(&path, padded(body.clone(), limit + 1)).await;
        assert_eq!(
            problem(answer, Code::BodyTooLarge).await.limit,
            Some(limit as u64)
        );
    }
    assert!(
        bench.world.events.take().is_empty(),
        "pushBytes is of pushes"
    );
}

#[tokio::test]
async fn a_blob_has_at_most_its_limit() {
    let bench = bench().await;
    for (name, length, status) in [
        ("nearly", 24_900_000, StatusCode::CREATED),
        ("exactly", 25 * MIB, StatusCode::CREATED),
        ("too-large", 25 * MIB + 1, StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        let path = of("d:sam", &format!("/blobs/{name:-<16}"));
        let ask = bench.ask(http::Method::PUT, &path).body(noise(length));
        let answer = ask.send().await.expect("an answer");
        assert_eq!(answer.status(), status, "{name}");
        if status == StatusCode::CREATED {
            let read = bench
                .ask(http::Method::GET, &path)
                .send()
                .await
                .expect("an answer");
            assert_eq!(read.content_length(), Some(length as u64));
            assert!(read.bytes().await.expect("whole") == noise(length));
        } else {
            assert_eq!(
                problem(answer, Code::BlobTooLarge).await.limit,
                Some(25 * MIB as u64)
            );
        }
    }
}

#[tokio::test]
async fn a_body_of_unknown_length_is_cut_at_the_limit() {
    let bench = bench().await;
    let pieces = |count: usize| {
        let piece = Bytes::from(vec![b' '; 64 * 1024]);
        reqwest::Body::wrap_stream(stream::iter(
            (0..count).map(move |_| Ok::<_, std::io::Error>(piece.clone())),
        ))
    };
    let path = of("d:sam", "/push");
    problem(bench.post(&path, pieces(129)).await, Code::BodyTooLarge).await;
    problem(bench.post("/devices", pieces(2)).await, Code::BodyTooLarge).await;
    problem(bench.post(&path, pieces(128)).await, Code::InvalidRequest).await;
    let path = of("d:sam", "/blobs/a-blob-chosen-at-random");
    let ask = bench.ask(http::Method::PUT, &path).body(pieces(1));
    problem(ask.send().await.expect("an answer"), Code::LengthRequired).await;
}

/// Whoever is refused before the body is read is told so, though they send all of it before they
/// look for an answer, as many clients do.
#[tokio::test]
async fn a_refusal_reaches_a_caller_who_sends_first() {
    let bench = bench().await;
    let body = noise(7_900_000);
    let chunk = format!("{:x}\r\n", body.len());
    let length = format!("Content-Length: {}\r\n\r\n", body.len());
    let chunked = format!("Transfer-Encoding: chunked\r\n\r\n{chunk}");
    for (path, identity, framing, tail, status) in [
        ("/devices", "", &length, "", "401"),
        (
            "/devices",
            "Authorization: Dev sam/laptop\r\n",
            &length,
            "",
            "413",
        ),
        ("/none", "", &length, "", "404"),
        (
            "/devices",
            "Authorization: Dev sam/laptop\r\n",
            &chunked,
            "\r\n0\r\n\r\n",
            "413",
        ),
    ] {
        let mut stream = TcpStream::connect(bench.served.address)
            .await
            .expect("connects");
        let head = format!("POST {PREFIX}{path} HTTP/1.1\r\nHost: relay\r\n{identity}{framing}");
        for part in [head.as_bytes(), &body, tail.as_bytes()] {
            stream.write_all(part).await.expect("nobody hangs up on us");
        }
        let mut answer = vec![0; 12];
        let read = timeout(PATIENCE, stream.read_exact(&mut answer)).await;
        read.expect("in time").expect("reads");
        assert_eq!(
            String::from_utf8_lossy(&answer),
            format!("HTTP/1.1 {status}")
        );
    }
}

/// What is announced is believed: nothing needs to be sent to be refused.
#[tokio::test]
async fn an_announcement_is_enough() {
    let bench = bench().await;
    for (method, path, length) in [
        ("POST", of("d:sam", "/push"), 8 * MIB + 1),
        ("POST", of("d:sam", "/push"), 1 << 40),
        (
            "PUT",
            of("d:sam", "/blobs/a-blob-chosen-at-random"),
            25 * MIB + 1,
        ),
        (
            "PUT",
            of("d:sam", "/blobs/a-blob-chosen-at-random"),
            1 << 40,
        ),
    ] {
        for expect in ["", "Expect: 100-continue\r\n"] {
            let mut stream = TcpStream::connect(bench.served.address)
                .await
                .expect("connects");
            let head = format!(
                "{method} {PREFIX}{path} HTTP/1.1\r\nHost: relay\r\n{expect}\
                 Authorization: Dev sam/laptop\r\nContent-Length: {length}\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await.expect("sends");
            let mut answer = vec![0; 12];
            let read = timeout(Duration::from_secs(10), stream.read_exact(&mut answer)).await;
            read.expect("in time").expect("reads");
            assert_eq!(answer, b"HTTP/1.1 413", "{path} {length} {expect}");
        }
    }
}

/// An upload that breaks off leaves nothing behind.
#[tokio::test]
async fn a_broken_upload_gives_its_bytes_back() {
    let bench = bench().await;
    let path = of("d:sam", "/blobs/a-blob-chosen-at-random");
    let mut stream = TcpStream::connect(bench.served.address)
        .await
        .expect("connects");
    let head = format!(
        "PUT {PREFIX}{path} HTTP/1.1\r\nHost: relay\r\nAuthorization: Dev sam/laptop\r\n\
         Content-Length: 1000000\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("sends");
    stream.write_all(&noise(500_000)).await.expect("sends");
    let used = async || {
        let graph = bench
            .world
            .get(&bench.laptop, &of("d:sam", ""))
            .send()
            .await;
        graph.value()["blobBytes"].as_u64().expect("a number")
    };
    argala_testkit::eventually("the upload to be charged", async || {
        (used().await == 1_000_000).then_some(())
    })
    .await;
    drop(stream);
    argala_testkit::eventually("its bytes to come back", async || {
        (used().await == 0).then_some(())
    })
    .await;
}
