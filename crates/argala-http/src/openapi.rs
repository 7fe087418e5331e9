//! The routes as an OpenAPI 3.1 document. Paths, bodies and parameters are told beside each
//! handler; what all of them share is put in here.

use std::{collections::BTreeMap, marker::PhantomData};

use argala_wire::{BlobId, CBOR, Code, DeviceId, GraphId, PROBLEM_JSON};
use serde_json::Value;
use utoipa::{
    IntoParams, IntoResponses, OpenApi as _, PartialSchema, ToSchema,
    openapi::{
        Content, Header, HeaderBuilder, OpenApi, Ref, RefOr, Required, Response, ResponseBuilder,
        extensions::ExtensionsBuilder,
        path::{Operation, Parameter, ParameterBuilder, ParameterIn, PathItem},
        security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme},
    },
};

use crate::routes::{self, Endpoint};

/// The extension under which a response lists the problem codes that come with its status.
const CODES: &str = "x-problem-codes";

/// The document without its routes.
pub(crate) fn frame() -> OpenApi {
    frame::Frame::openapi()
}

/// The document that describes what [`router`](crate::router) serves.
#[must_use]
pub fn openapi() -> OpenApi {
    let mut document = routes::all().into_openapi();
    for item in document.paths.paths.values_mut() {
        for operation in operations(item) {
            complete(operation);
        }
        // One handler serves both; the operation's id must be one's own.
        if let Some(head) = &mut item.head {
            head.operation_id = head.operation_id.as_ref().map(|id| format!("{id}Head"));
        }
    }
    let components = document.components.get_or_insert_default();
    let mut bearer = Http::new(HttpAuthScheme::Bearer);
    bearer.bearer_format = Some("JWT".to_owned());
    bearer.description = Some("A token that names a member and a device.".to_owned());
    components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
    // No route's own: what is said where there is no route, or not this one.
    for (name, code) in [
        ("NotFound", Code::NotFound),
        ("MethodNotAllowed", Code::MethodNotAllowed),
    ] {
        components
            .responses
            .insert(name.to_owned(), problem_response(&[code]).into());
    }
    document.security = Some(vec![SecurityRequirement::new(
        "bearer",
        Vec::<String>::new(),
    )]);
    without_links(&document)
}

/// What the descriptions say, without the links of the documentation that they come from: those
/// lead somewhere in the source alone.
fn without_links(document: &OpenApi) -> OpenApi {
    let mut value = serde_json::to_value(document).expect("a document has a JSON form");
    unlink(&mut value);
    serde_json::from_value(value).expect("descriptions alone have changed")
}

fn unlink(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                match value {
                    Value::String(text) if name == "description" => {
                        *text = text
                            .replace("[`", "`")
                            .replace("`]", "`")
                            .replace("crate::", "");
                    }
                    value => unlink(value),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(unlink),
        _ => {}
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem {
        get,
        put,
        post,
        delete,
        head,
        ..
    } = item;
    [get, put, post, delete, head].into_iter().flatten()
}

/// Adds what every operation takes and every answer carries.
fn complete(operation: &mut Operation) {
    let request_id = header_param(
        "X-Request-Id",
        "A name for this request in answers and logs; a random one otherwise",
    );
    operation
        .parameters
        .get_or_insert_default()
        .push(request_id.into());
    for response in operation.responses.responses.values_mut() {
        if let RefOr::T(response) = response {
            let header = text_header("The request's name, in logs too");
            response
                .headers
                .insert("X-Request-Id".to_owned(), header.into());
        }
    }
}

/// The problems that an endpoint answers with, grouped by status.
pub(crate) struct Problems<E>(PhantomData<E>);

impl<E: Endpoint> IntoResponses for Problems<E> {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
        for code in E::PROBLEMS.iter().copied().flatten() {
            by_status.entry(code.status()).or_default().push(*code);
        }
        let told = |(status, codes): (u16, Vec<Code>)| {
            (status.to_string(), problem_response(&codes).into())
        };
        by_status.into_iter().map(told).collect()
    }
}

/// The answer with one of `codes`, which share a status.
fn problem_response(codes: &[Code]) -> Response {
    let told: Vec<_> = codes
        .iter()
        .map(|code| format!("`{}`: {}", code.as_str(), code.title()))
        .collect();
    let names: Vec<_> = codes.iter().map(|code| code.as_str()).collect();
    let schema = || Content::new(Some(Ref::from_schema_name("Problem")));
    let mut response = ResponseBuilder::new()
        .description(told.join(". "))
        .content(PROBLEM_JSON, schema())
        .content(CBOR, schema())
        .extensions(Some(ExtensionsBuilder::new().add(CODES, names).build()));
    for code in codes {
        response = match code {
            Code::RateLimited | Code::Unavailable => {
                response.header("Retry-After", text_header("Seconds to wait, rounded up"))
            }
            Code::Unauthenticated => response.header("WWW-Authenticate", text_header("`Bearer`")),
            Code::RangeNotSatisfiable => response.header(
                "Content-Range",
                text_header("`bytes */` and the blob's size"),
            ),
            Code::MethodNotAllowed => {
                response.header("Allow", text_header("The methods that the route has"))
            }
            _ => response,
        };
    }
    response.build()
}

fn text_header(description: &str) -> Header {
    HeaderBuilder::new()
        .schema(Some(String::schema()))
        .description(Some(description))
        .build()
}

fn header_param(name: &str, description: &str) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(description))
        .schema(Some(String::schema()))
        .build()
}

fn path_param(name: &str, description: &str, schema: RefOr<utoipa::openapi::Schema>) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some(description))
        .schema(Some(schema))
        .build()
}

/// A blob's bytes.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "it stands for a schema")]
pub(crate) struct BlobBytes(Vec<u8>);

macro_rules! parameters {
    ($($(#[$doc:meta])* $name:ident = $parameter:expr;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name;

        impl IntoParams for $name {
            fn into_params(_place: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
                vec![$parameter]
            }
        }
    )*};
}

parameters! {
    /// The graph in a path.
    GraphIdParam = path_param(
        "graphId",
        "`g:<groupId>` or `d:<memberId>`, percent-encoded as one segment",
        GraphId::schema(),
    );
    /// The device in a path.
    DeviceIdParam = path_param(
        "deviceId",
        "One of the caller's devices, percent-encoded as one segment",
        DeviceId::schema(),
    );
    /// The blob in a path.
    BlobIdParam = path_param(
        "blobId",
        "16 to 128 of `A–Z a–z 0–9 _ -`, chosen at random",
        BlobId::schema(),
    );
    /// What makes a push answer as it did the first time.
    IdempotencyKeyParam = header_param(
        "Idempotency-Key",
        "1 to 128 visible ASCII characters; kept for 24 hours for this device and graph",
    );
    /// What a caller has already.
    IfNoneMatchParam = header_param("If-None-Match", "Tags of what the caller has already");
    /// A blob's bytes, checked.
    ContentDigestParam = header_param(
        "Content-Digest",
        "`sha-256=:…:` of the bytes (RFC 9530); checked where it is sent",
    );
    /// Part of a blob.
    RangeParam = header_param("Range", "One range of bytes; several are answered with all");
    /// A part of what a caller has the rest of.
    IfRangeParam = header_param("If-Range", "The tag that the range is of");
}

mod frame {
    //! What stands in the document beside the routes.

    #[derive(utoipa::OpenApi)]
    #[openapi(
        info(
            title = "Argala relay",
            description = "A relay for shared, end-to-end encrypted graphs. Every body is JSON or \
                           CBOR, the same maps; what has the format `byte` is unpadded base64url \
                           in JSON and a byte string in CBOR. Every error is a problem document \
                           (RFC 9457).",
        ),
        servers((url = "/api/argala", description = "Where the service stands by default")),
        components(schemas(argala_wire::Problem)),
        tags(
            (name = "devices", description = "A member's devices and their keys"),
            (name = "graphs", description = "What a member may read"),
            (name = "keys", description = "Epochs and wraps"),
            (name = "records", description = "Pushing and pulling"),
            (name = "blobs", description = "Sealed bytes too large for a record"),
            (name = "pokes", description = "What to pull, as it happens"),
            (name = "limits", description = "The ceilings in force"),
        ),
    )]
    pub(super) struct Frame;
}

#[cfg(test)]
#[path = "openapi_tests.rs"]
mod tests;
