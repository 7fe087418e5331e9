//! Objects in a bucket, on anything that speaks S3.

mod call;
mod read;
mod spool;

use std::{
    fmt, fs, io,
    net::IpAddr,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use argala_core::{
    StoreError, StoreResult,
    ports::{BlobStore, ByteStream, ListedObject, ObjectKey, ObjectLink},
};
use argala_wire::Timestamp;
use async_trait::async_trait;
use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_sdk_s3::{
    Client,
    config::{
        BehaviorVersion, Credentials, Region, RequestChecksumCalculation,
        ResponseChecksumValidation, SharedCredentialsProvider, StalledStreamProtectionConfig,
        retry::RetryConfig, timeout::TimeoutConfig,
    },
    operation::get_object::{GetObjectError, GetObjectOutput},
    presigning::PresigningConfig,
};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_smithy_runtime_api::client::dns::{DnsFuture, ResolveDns};
use secrecy::{ExposeSecret as _, SecretString};

use call::{Failed, is_missing};
use spool::Spooled;

/// The most that S3 lists at a time.
const PAGE: usize = 1_000;

/// Who the relay is to S3.
#[derive(Debug, Clone)]
pub enum S3Keys {
    /// A key of a user.
    Fixed {
        /// Its public half.
        id: String,
        /// Its secret half.
        secret: SecretString,
    },
    /// What the SDK finds in the environment, in its files, and by asking the machine it runs on.
    /// Nothing here reads the environment unless this is asked for.
    Chain,
}

/// Which bucket, and how it is reached.
#[derive(Debug, Clone)]
pub struct S3Options {
    /// The bucket. It is there already.
    pub bucket: String,
    /// The URL of the service; AWS's own of the region where `None`.
    pub endpoint: Option<String>,
    /// The region that requests are signed for.
    pub region: String,
    /// Whether the bucket stands in a URL's path. Otherwise it is the first part of its host.
    pub force_path_style: bool,
    /// Who the relay is.
    pub keys: S3Keys,
    /// The folder of uploads on their way to S3, created where it is missing. It takes as many
    /// bytes as are being uploaded at the time. Who uploads nothing needs none.
    pub spool: Option<PathBuf>,
    /// Whether links to objects are given out.
    pub links: bool,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long the head of an answer may take.
    pub answer_timeout: Duration,
    /// The longest pause within an object's bytes, in and out.
    pub stall_timeout: Duration,
    /// The address to connect to in place of what the endpoint's name resolves to.
    pub address: Option<IpAddr>,
}

impl S3Options {
    /// Those of a bucket on AWS, by the SDK's own search for keys.
    #[must_use]
    pub fn new(bucket: impl Into<String>, spool: impl Into<PathBuf>) -> Self {
        Self {
            bucket: bucket.into(),
            endpoint: None,
            region: "us-east-1".to_owned(),
            force_path_style: false,
            keys: S3Keys::Chain,
            spool: Some(spool.into()),
            links: false,
            connect_timeout: Duration::from_secs(3),
            answer_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(20),
            address: None,
        }
    }
}

/// Keeps each object under its own name in a bucket.
///
/// An upload is spooled before it is sent, so that it can be sent twice. Each question has its own
/// timeout here, and is asked once more where S3 was not up to it.
pub struct S3Blobs {
    client: Client,
    options: S3Options,
}

impl fmt::Debug for S3Blobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Blobs")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl S3Blobs {
    /// Makes the spool's folder and a client. S3 is not asked anything yet: it may be down.
    ///
    /// # Errors
    /// Where the folder cannot be created or written.
    pub async fn open(options: S3Options) -> io::Result<Self> {
        if let Some(folder) = options.spool.clone() {
            tokio::task::spawn_blocking(move || prepare(&folder))
                .await
                .map_err(io::Error::other)??;
        }
        let region = Region::new(options.region.clone());
        let keys = match &options.keys {
            S3Keys::Fixed { id, secret } => SharedCredentialsProvider::new(Credentials::new(
                id,
                secret.expose_secret(),
                None,
                None,
                "configuration",
            )),
            S3Keys::Chain => SharedCredentialsProvider::new(
                DefaultCredentialsChain::builder()
                    .region(region.clone())
                    .build()
                    .await,
            ),
        };
        let mut config = aws_sdk_s3::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(region)
            .credentials_provider(keys)
            .force_path_style(options.force_path_style)
            // Checksums of the SDK's choice travel as headers and trailers that other vendors
            // refuse (aws-sdk-rust 1240).
            .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
            .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
            // Trying again, and when to give up, is decided here: see `call`.
            .retry_config(RetryConfig::disabled())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .timeout_config(
                TimeoutConfig::builder()
                    .connect_timeout(options.connect_timeout)
                    .build(),
            );
        config.set_endpoint_url(options.endpoint.clone());
        if let Some(address) = options.address {
            let client = aws_smithy_http_client::Builder::new()
                .tls_provider(Provider::Rustls(CryptoMode::AwsLc))
                .build_with_resolver(Pinned(address));
            config.set_http_client(Some(client));
        }
        let client = Client::from_conf(config.build());
        Ok(Self { client, options })
    }

    /// Asks for an object's bytes.
    async fn fetch(
        &self,
        key: &ObjectKey,
        range: Option<&Range<u64>>,
    ) -> Result<GetObjectOutput, Failed<GetObjectError>> {
        let wanted = range.map(|range| format!("bytes={}-{}", range.start, range.end - 1));
        call::twice(self.options.answer_timeout, |_| {
            self.client
                .get_object()
                .bucket(&self.options.bucket)
                .key(key.as_str())
                .set_range(wanted.clone())
                .send()
        })
        .await
    }

    /// Whether there is such an object.
    async fn is_there(&self, key: &ObjectKey) -> StoreResult<bool> {
        let asked = call::twice(self.options.answer_timeout, |_| {
            self.client
                .head_object()
                .bucket(&self.options.bucket)
                .key(key.as_str())
                .send()
        });
        match asked.await {
            Ok(_) => return Ok(true),
            Err(failed) if failed.status() == Some(404) => {}
            Err(failed) => return Err(failed.into_store_error("look for an object")),
        }
        // A HEAD has no body to tell a missing object from a missing bucket.
        match self.fetch(key, None).await {
            Ok(_) => Ok(true),
            Err(failed) if is_missing(&failed) => Ok(false),
            Err(failed) => Err(failed.into_store_error("look for an object")),
        }
    }
}

/// Every name has this address.
#[derive(Debug, Clone)]
struct Pinned(IpAddr);

impl ResolveDns for Pinned {
    fn resolve_dns<'a>(&'a self, _: &'a str) -> DnsFuture<'a> {
        DnsFuture::ready(Ok(vec![self.0]))
    }
}

/// Makes the spool's folder, for its owner's eyes only, and sees that it takes files.
fn prepare(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)?;
    tempfile::tempfile_in(folder).map(drop)
}

#[async_trait]
impl BlobStore for S3Blobs {
    async fn put(&self, key: &ObjectKey, size: u64, body: ByteStream) -> StoreResult<()> {
        let Some(spool) = &self.options.spool else {
            let without = "there is no folder for uploads";
            return Err(StoreError::internal("store an object", without));
        };
        let spooled = Spooled::take(spool, size, body).await?;
        let length =
            i64::try_from(size).map_err(|error| StoreError::internal("store an object", error))?;
        call::twice(self.options.stall_timeout, |sent: &Arc<AtomicU64>| {
            self.client
                .put_object()
                .bucket(&self.options.bucket)
                .key(key.as_str())
                .content_type("application/octet-stream")
                .content_length(length)
                .body(spooled.body(sent).into())
                .send()
        })
        .await
        .map(drop)
        .map_err(|failed| failed.into_store_error("store an object"))
    }

    async fn get(
        &self,
        key: &ObjectKey,
        range: Option<Range<u64>>,
    ) -> StoreResult<Option<ByteStream>> {
        if range.as_ref().is_some_and(Range::is_empty) {
            let none: ByteStream = Box::pin(futures_util::stream::empty());
            return Ok(self.is_there(key).await?.then_some(none));
        }
        match self.fetch(key, range.as_ref()).await {
            Ok(answer) => read::checked(answer, range, self.options.stall_timeout).map(Some),
            Err(failed) if is_missing(&failed) => Ok(None),
            Err(failed) if failed.status() == Some(416) => {
                Err(StoreError::corrupt("an object is shorter than its blob"))
            }
            Err(failed) => Err(failed.into_store_error("read an object")),
        }
    }

    async fn delete(&self, key: &ObjectKey) -> StoreResult<()> {
        let deleted = call::twice(self.options.answer_timeout, |_| {
            self.client
                .delete_object()
                .bucket(&self.options.bucket)
                .key(key.as_str())
                .send()
        });
        match deleted.await {
            Ok(_) => Ok(()),
            Err(failed) if is_missing(&failed) => Ok(()),
            Err(failed) => Err(failed.into_store_error("remove an object")),
        }
    }

    async fn list(
        &self,
        instance: &str,
        after: Option<&ObjectKey>,
        limit: usize,
    ) -> StoreResult<Vec<ListedObject>> {
        let prefix = format!("{instance}/");
        let mut listed = Vec::new();
        let mut next: Option<String> = None;
        while listed.len() < limit {
            let count = i32::try_from((limit - listed.len()).min(PAGE)).unwrap_or(i32::MAX);
            let page = call::twice(self.options.answer_timeout, |_| {
                self.client
                    .list_objects_v2()
                    .bucket(&self.options.bucket)
                    .prefix(&prefix)
                    .set_start_after(after.map(|after| after.as_str().to_owned()))
                    .set_continuation_token(next.clone())
                    .max_keys(count)
                    .send()
            });
            let page = page
                .await
                .map_err(|failed| failed.into_store_error("list objects"))?;
            for object in page.contents() {
                // What else lies there is not ours, and a vendor may not know where to begin.
                let key = object.key().and_then(ObjectKey::parse);
                let Some(key) =
                    key.filter(|key| key.as_str().starts_with(&prefix) && Some(key) > after)
                else {
                    continue;
                };
                let modified = object
                    .last_modified()
                    .and_then(|time| time.to_millis().ok());
                let Some(modified) = modified else {
                    return Err(StoreError::unavailable(
                        "list objects",
                        "S3 did not tell when an object was written",
                    ));
                };
                listed.push(ListedObject {
                    key,
                    size: u64::try_from(object.size().unwrap_or(0)).unwrap_or(0),
                    modified_at: Timestamp::from_millis(modified),
                });
            }
            next = page.next_continuation_token().map(str::to_owned);
            if next.is_none() {
                break;
            }
        }
        listed.truncate(limit);
        Ok(listed)
    }

    async fn link(&self, key: &ObjectKey, lifetime: Duration) -> StoreResult<ObjectLink> {
        if !self.options.links {
            return Ok(ObjectLink::None);
        }
        // Whoever follows a link to nothing is told so by S3, and nobody hears of the loss.
        if !self.is_there(key).await? {
            return Ok(ObjectLink::Missing);
        }
        let terms = PresigningConfig::expires_in(lifetime)
            .map_err(|error| StoreError::internal("sign a link", error))?;
        let signed = self
            .client
            .get_object()
            .bucket(&self.options.bucket)
            .key(key.as_str())
            .response_content_type("application/octet-stream")
            .response_cache_control("private, no-store")
            .presigned(terms);
        // Keys may have to be asked for first.
        let signed = tokio::time::timeout(self.options.answer_timeout, signed)
            .await
            .map_err(|late| StoreError::unavailable("sign a link", late))?
            .map_err(|error| Failed::Sdk(Box::new(error)).into_store_error("sign a link"))?;
        Ok(ObjectLink::At(signed.uri().to_owned()))
    }
}
