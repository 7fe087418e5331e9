//! The wire, typed: one method for each route, nothing of keys or plaintext.
//!
//! Every method makes its request again where that can help, and only there: after a cut
//! connection or a 503 with growing, jittered waits; after a 429 when the relay said so. A request
//! made again is the same to the byte, its `Idempotency-Key` included, so that it is told what
//! came of the first (protocol, section 6). A 401, a 403 and every other answer end the call.

mod blobs;
mod credential;
mod pokes;
mod retry;
mod routes;

use std::{fmt, time::Duration};

use argala_wire::{Problem, codec::Format};
use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{
    Method, RequestBuilder, Response, StatusCode, Url,
    header::{
        ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER,
    },
};
use serde::de::DeserializeOwned;

pub use blobs::{BlobBody, BlobUpload, Range};
pub use credential::{Credential, Token, device_ref};
pub use pokes::PokeStream;
pub use retry::Retry;
pub use routes::{PullQuery, Wraps};

use crate::error::Error;
use retry::Failure;

/// Where the service listens unless it is told otherwise.
pub const DEFAULT_URL: &str = "http://127.0.0.1:8787/api/argala";

/// All but what RFC 3986 calls unreserved, so that an id is one segment whatever it holds.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

fn segment(id: &str) -> String {
    utf8_percent_encode(id, SEGMENT).to_string()
}

fn with_query(url: &str, query: &[(&str, String)]) -> String {
    let mut out = url.to_owned();
    for (at, (name, value)) in query.iter().enumerate() {
        out.push(if at == 0 { '?' } else { '&' });
        out.push_str(name);
        out.push('=');
        out.push_str(&segment(value));
    }
    out
}

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);
/// How long an answer, or the next piece of it, may be waited for once the request is sent.
const SILENCE: Duration = Duration::from_secs(60);
/// Bytes a second that the slowest line is thought to carry: a request may take as long as its
/// body needs over such a line.
const SLOWEST: u64 = 16 * 1024;

/// A relay, as one device talks to it. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: String,
    format: Format,
    retry: Retry,
}

impl Client {
    /// A client of the relay whose routes lie under `url`.
    ///
    /// # Errors
    /// [`Error::Usage`] where `url` is no `http` or `https` URL.
    pub fn new(url: &str, credential: &Credential) -> Result<Self, Error> {
        let usage = |why: String| Error::Usage(format!("the relay's URL: {why}"));
        let parsed = Url::parse(url).map_err(|why| usage(why.to_string()))?;
        if !matches!(parsed.scheme(), "http" | "https") || parsed.query().is_some() {
            return Err(usage("it is http or https, and has no query".to_owned()));
        }
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, credential.header()?);
        let http = reqwest::Client::builder()
            .user_agent(concat!("argala/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers)
            .connect_timeout(CONNECT)
            // A blob may be somewhere else, and nobody there is to learn of which graph it is.
            .referer(false)
            .build()
            .map_err(|why| usage(describe(why)))?;
        Ok(Self {
            http,
            base: parsed.as_str().trim_end_matches('/').to_owned(),
            format: Format::Json,
            retry: Retry::default(),
        })
    }

    /// The same client, speaking `format`.
    #[must_use]
    pub fn with_format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// The same client, as patient as `retry`.
    #[must_use]
    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// In which form bodies are sent and asked for.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// How patient the client is.
    #[must_use]
    pub fn retry(&self) -> &Retry {
        &self.retry
    }

    fn url(&self, path: &[&str]) -> String {
        let mut url = self.base.clone();
        for part in path {
            url.push('/');
            url.push_str(&segment(part));
        }
        url
    }

    /// Makes a request until it has a usable answer, whose body is still to be read.
    async fn open(&self, make: impl Fn() -> RequestBuilder) -> Result<Response, Error> {
        let mut attempts = self.retry.begin();
        loop {
            let (failure, error) = match send(make(), 0).await {
                Ok(response) if is_answer(response.status()) => return Ok(response),
                Ok(response) => refusal(response).await,
                Err(error) => (Failure::Cut, error),
            };
            match attempts.after(failure) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Err(error),
            }
        }
    }

    /// Makes a request, whose body has `size` bytes, until it has a whole answer.
    async fn fetch(
        &self,
        size: u64,
        make: impl Fn() -> Result<RequestBuilder, Error>,
    ) -> Result<Answer, Error> {
        let mut attempts = self.retry.begin();
        loop {
            let (failure, error) = match send(make()?, size).await {
                Ok(response) if is_answer(response.status()) => {
                    let format = format_of(response.headers());
                    match whole(response).await {
                        Ok(body) => return Ok(Answer { format, body }),
                        Err(error) => (Failure::Cut, error),
                    }
                }
                Ok(response) => refusal(response).await,
                Err(error) => (Failure::Cut, error),
            };
            match attempts.after(failure) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Err(error),
            }
        }
    }

    async fn call<T: DeserializeOwned>(&self, request: &Request) -> Result<T, Error> {
        let size = request.body.as_ref().map_or(0, |(_, body)| body.len());
        self.fetch(size as u64, || Ok(self.build(request)))
            .await?
            .read()
    }

    fn build(&self, request: &Request) -> RequestBuilder {
        let mut builder = self
            .http
            .request(
                request.method.clone(),
                with_query(&request.url, &request.query),
            )
            .header(ACCEPT, self.format.media_type());
        for (name, value) in &request.headers {
            builder = builder.header(name, value);
        }
        match &request.body {
            None => builder,
            Some((format, body)) => builder
                .header(CONTENT_TYPE, format.media_type())
                .body(body.clone()),
        }
    }

    fn get(&self, path: &[&str]) -> Request {
        Request::new(Method::GET, self.url(path))
    }

    fn post<T: serde::Serialize>(&self, path: &[&str], body: &T) -> Request {
        let body = Bytes::from(self.format.encode(body));
        self.post_encoded(path, self.format, body)
    }

    fn post_encoded(&self, path: &[&str], format: Format, body: Bytes) -> Request {
        let mut request = Request::new(Method::POST, self.url(path));
        request.body = Some((format, body));
        request
    }
}

/// Tells where it talks to, not as whom.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("base", &self.base)
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

/// A request that can be made any number of times.
struct Request {
    method: Method,
    url: String,
    query: Vec<(&'static str, String)>,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Option<(Format, Bytes)>,
}

impl Request {
    fn new(method: Method, url: String) -> Self {
        Self {
            method,
            url,
            query: Vec::new(),
            headers: Vec::new(),
            body: None,
        }
    }

    fn query<T: ToString>(mut self, name: &'static str, value: Option<T>) -> Self {
        self.query
            .extend(value.map(|value| (name, value.to_string())));
        self
    }

    fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }
}

struct Answer {
    format: Format,
    body: Bytes,
}

impl Answer {
    fn read<T: DeserializeOwned>(&self) -> Result<T, Error> {
        self.format
            .decode_answer(&self.body)
            .map_err(|why| match &why.field {
                Some(field) => Error::Answer(format!("{field}: {why}")),
                None => Error::Answer(why.to_string()),
            })
    }
}

fn silent() -> Error {
    Error::Offline("no answer in time".to_owned())
}

/// Sends one request, whose body has `size` bytes, and waits for the head of the answer.
async fn send(request: RequestBuilder, size: u64) -> Result<Response, Error> {
    let patience = CONNECT + SILENCE + Duration::from_secs(size / SLOWEST);
    match tokio::time::timeout(patience, request.send()).await {
        Ok(sent) => sent.map_err(|error| Error::Offline(describe(error))),
        Err(_) => Err(silent()),
    }
}

/// The next piece of an answer's body.
async fn piece(response: &mut Response) -> Result<Option<Bytes>, Error> {
    match tokio::time::timeout(SILENCE, response.chunk()).await {
        Ok(piece) => piece.map_err(|error| Error::Offline(describe(error))),
        Err(_) => Err(silent()),
    }
}

/// The whole body of an answer.
async fn whole(mut response: Response) -> Result<Bytes, Error> {
    let mut body = Vec::new();
    while let Some(piece) = piece(&mut response).await? {
        body.extend_from_slice(&piece);
    }
    Ok(body.into())
}

fn is_answer(status: StatusCode) -> bool {
    status.is_success() || status == StatusCode::NOT_MODIFIED
}

fn format_of(headers: &HeaderMap) -> Format {
    let cbor = headers
        .get(CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(argala_wire::CBOR.as_bytes()));
    if cbor { Format::Cbor } else { Format::Json }
}

/// What a relay of a later version says where this build does not know the code.
#[derive(serde::Deserialize)]
struct UnknownProblem {
    code: String,
}

/// Whether a code may be repeated in an error: what is no code of ours might be anything.
fn speakable(code: &str) -> bool {
    (1..=64).contains(&code.len()) && code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
}

async fn refusal(response: Response) -> (Failure, Error) {
    let status = response.status().as_u16();
    let headers = response.headers();
    let format = format_of(headers);
    let after = headers
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.parse().ok())
        .map(Duration::from_secs);
    let body = whole(response).await.unwrap_or_default();
    let problem: Option<Problem> = format.decode_answer(&body).ok();
    let failure = Failure::of(status, problem.as_ref(), after);
    let error = match problem {
        Some(problem) => Error::Relay(Box::new(problem)),
        None => Error::Status {
            status,
            code: format
                .decode_answer(&body)
                .ok()
                .map(|problem: UnknownProblem| problem.code)
                .filter(|code| speakable(code)),
        },
    };
    (failure, error)
}

/// The failure and what caused it, without the URL: it names a graph, and is no help.
fn describe(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(next) = cause {
        let said = next.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(url: &str) -> Result<Client, Error> {
        Client::new(url, &Credential::dev("sam/laptop")?)
    }

    #[test]
    fn an_id_is_one_segment_whatever_it_holds() {
        let client = client("http://127.0.0.1:1/api/argala/").expect("legal");
        assert_eq!(
            client.url(&["graphs", "g:a/b c%?#é", "pull"]),
            "http://127.0.0.1:1/api/argala/graphs/g%3Aa%2Fb%20c%25%3F%23%C3%A9/pull"
        );
    }

    #[test]
    fn a_query_is_encoded_too() {
        let query = [("cursor", "a+/=&".to_owned()), ("limit", "5".to_owned())];
        assert_eq!(with_query("/p", &query), "/p?cursor=a%2B%2F%3D%26&limit=5");
        assert_eq!(with_query("/p", &[]), "/p");
    }

    #[test]
    fn only_urls_of_a_relay_are_taken() {
        for url in ["", "127.0.0.1:8787", "file:///etc", "http://h/?x=1"] {
            assert!(matches!(client(url), Err(Error::Usage(_))), "{url}");
        }
    }

    #[test]
    fn what_is_no_code_is_not_repeated() {
        assert!(speakable("graph_not_found"));
        for text in ["", "Dear Alex", "a b", &"x".repeat(65)] {
            assert!(!speakable(text), "{text}");
        }
    }
}
