use std::collections::BTreeSet;

use serde_json::Value;

use super::*;

fn document() -> Value {
    serde_json::to_value(openapi()).expect("writes")
}

/// Every operation, with its method and path.
fn each_operation(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().expect("paths");
    let mut all = Vec::new();
    for (path, item) in paths {
        for (method, operation) in item.as_object().expect("an item") {
            all.push((method.to_uppercase(), path.clone(), operation.clone()));
        }
    }
    all
}

#[test]
fn the_protocols_routes_and_no_others() {
    let told: BTreeSet<_> = each_operation(&document())
        .into_iter()
        .map(|(method, path, _)| format!("{method} {path}"))
        .collect();
    let want: BTreeSet<_> = [
        "POST /devices",
        "GET /devices",
        "DELETE /devices/{deviceId}",
        "GET /graphs",
        "GET /graphs/{graphId}",
        "GET /graphs/{graphId}/devices",
        "GET /graphs/{graphId}/wraps",
        "POST /graphs/{graphId}/rotate",
        "POST /graphs/{graphId}/grant",
        "POST /graphs/{graphId}/push",
        "GET /graphs/{graphId}/pull",
        "PUT /graphs/{graphId}/blobs/{blobId}",
        "GET /graphs/{graphId}/blobs/{blobId}",
        "HEAD /graphs/{graphId}/blobs/{blobId}",
        "DELETE /graphs/{graphId}/blobs/{blobId}",
        "GET /pokes",
        "GET /limits",
    ]
    .into_iter()
    .map(str::to_owned)
    .collect();
    assert_eq!(told, want);
}

#[test]
fn every_problem_code_is_told_with_its_status() {
    let document = document();
    let mut told = BTreeSet::new();
    let mut note = |status: Option<&str>, response: &Value| {
        for code in response[CODES].as_array().into_iter().flatten() {
            let code: Code = serde_json::from_value(code.clone()).expect("a code");
            if let Some(status) = status {
                assert_eq!(code.status().to_string(), status, "{code:?}");
            }
            told.insert(code.as_str());
        }
    };
    for (_, _, operation) in each_operation(&document) {
        for (status, response) in operation["responses"].as_object().expect("responses") {
            note(Some(status), response);
        }
    }
    for response in document["components"]["responses"]
        .as_object()
        .expect("responses")
        .values()
    {
        note(None, response);
    }
    let all: BTreeSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(told, all);
}

#[test]
fn every_reference_leads_somewhere() {
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(reference)) = map.get("$ref") {
                    found.insert(reference.clone());
                }
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(list) => list.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let document = document();
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.contains("#/components/schemas/Problem"));
    for reference in found {
        let pointer = reference.trim_start_matches('#');
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

#[test]
fn every_answer_and_every_path_is_described() {
    let document = document();
    assert_eq!(document["openapi"], "3.1.0");
    let mut ids = BTreeSet::new();
    for (method, path, operation) in each_operation(&document) {
        let id = operation["operationId"].as_str().expect("an id").to_owned();
        assert!(ids.insert(id), "{method} {path} has an id of its own");
        assert!(
            operation["summary"]
                .as_str()
                .is_some_and(|text| !text.is_empty()),
            "{path}"
        );
        let parameters = operation["parameters"].as_array().expect("parameters");
        let named: BTreeSet<_> = parameters
            .iter()
            .map(|p| p["name"].as_str().expect("a name"))
            .collect();
        for part in path.split('/').filter_map(|part| part.strip_prefix('{')) {
            assert!(named.contains(part.trim_end_matches('}')), "{path}: {part}");
        }
        for (status, response) in operation["responses"].as_object().expect("responses") {
            let headers = response["headers"].as_object().expect("headers");
            assert!(
                headers.contains_key("X-Request-Id"),
                "{method} {path} {status}"
            );
            if status.starts_with(['4', '5']) {
                let content = response["content"].as_object().expect("content");
                assert!(
                    content.contains_key(PROBLEM_JSON),
                    "{method} {path} {status}"
                );
                assert!(content.contains_key(CBOR), "{method} {path} {status}");
            }
        }
        let body = &operation["requestBody"]["content"];
        if method == "POST" {
            assert!(body["application/json"].is_object(), "{path}");
            assert!(body["application/cbor"].is_object(), "{path}");
        }
    }
}

#[test]
fn descriptions_are_for_readers_of_the_document() {
    let text = serde_json::to_string(&openapi()).expect("writes");
    assert!(!text.contains("[`") && !text.contains("crate::"));
}
