//! `put`, `get`, `forget`.

use argala_client::{
    GraphAccess, Session,
    session::{BlobOptions, BlobSource},
};
use serde_json::json;

use crate::{
    args,
    context::Context,
    exit::{Exit, Failure},
    output::hex,
};

pub(crate) async fn put(context: &Context, args: args::Put) -> Result<Exit, Failure> {
    let mut session = context.with_bar(context.session().await?);
    let id = args.id.unwrap_or_else(Session::new_blob_id);
    let options = BlobOptions {
        policy: args.policy,
        ttl: args.ttl,
    };
    let source = BlobSource::File(args.file.clone());
    let (stored, answer) = session
        .put_blob_with(&args.graph, &id, &source, options)
        .await?;
    let sha256 = hex(&stored.sha256);
    context.output.result(
        || {
            json!({
                "graphId": args.graph,
                "blobId": stored.id,
                "size": stored.size,
                "sha256": sha256,
                "epoch": stored.epoch,
                "sealedSize": answer.size,
                "policy": answer.policy,
                "expiresAt": answer.expires_at,
            })
        },
        |out| {
            let (id, size) = (&stored.id, stored.size);
            writeln!(
                out,
                "{} is stored as {id}: {size} bytes",
                args.file.display()
            )?;
            writeln!(out, "SHA-256 {sha256}")
        },
    )?;
    Ok(Exit::Done)
}

pub(crate) async fn get(context: &Context, args: &args::Get) -> Result<Exit, Failure> {
    let mut session = context.with_bar(context.session().await?);
    let sha256 = args.sha256.map(|sha256| sha256.0);
    let size = session
        .get_blob(&args.graph, &args.blob, &args.file, sha256.as_ref())
        .await?;
    context.output.result(
        || {
            json!({
                "graphId": args.graph,
                "blobId": args.blob,
                "file": args.file.display().to_string(),
                "size": size,
            })
        },
        |out| writeln!(out, "{}: {size} bytes", args.file.display()),
    )?;
    Ok(Exit::Done)
}

pub(crate) async fn forget(context: &Context, args: &args::Forget) -> Result<Exit, Failure> {
    let session = context.session().await?;
    session.api().delete_blob(&args.graph, &args.blob).await?;
    context.output.result(
        || json!({ "graphId": args.graph, "blobId": args.blob }),
        |out| writeln!(out, "{} is deleted.", args.blob),
    )?;
    Ok(Exit::Done)
}
