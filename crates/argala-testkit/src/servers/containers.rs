//! Servers in containers, where a Docker engine answers.

use std::{collections::HashMap, error::Error, mem, time::Duration};

use argala_servers::{Contained, PASSWORD, ROLE};
use testcontainers::{
    ContainerAsync, ContainerRequest, GenericImage, ImageExt as _,
    bollard::models::PortBinding,
    core::{IntoContainerPort as _, Mount, client::docker_client_instance},
    runners::AsyncRunner as _,
};
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::NoTls;

type Failure = Box<dyn Error + Send + Sync>;

/// How long an engine may take to say that it is there.
const ENGINE: Duration = Duration::from_secs(5);
/// How long getting an image may take: a test that waits for a network is worse than one that uses
/// what the machine has.
const PULL: Duration = Duration::from_secs(10);
/// Longer than a server takes to start on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// The port that a Postgres listens on in its container.
const POSTGRES: u16 = 5432;
/// Where it keeps its data: in memory, since nobody asks for it after the run.
const DATA: &str = "/var/lib/postgresql/data";

/// A Postgres that runs in a container, removed when this is dropped.
#[derive(Debug)]
pub struct PostgresContainer {
    container: ContainerAsync<GenericImage>,
    port: u16,
}

impl PostgresContainer {
    /// Starts one from `image` (`postgres:17`: what the official image understands, any image must)
    /// with some settings; `None` where no Docker engine answers, or it neither has the image nor
    /// gets it within 10 s.
    ///
    /// # Errors
    /// Where the engine has the image and the server does not take connections within a minute.
    pub async fn start(image: &str, settings: &[(&str, &str)]) -> Result<Option<Self>, Failure> {
        if !at_hand(image).await {
            return Ok(None);
        }
        let arguments = settings
            .iter()
            .flat_map(|(name, value)| ["-c".to_owned(), format!("{name}={value}")]);
        let container = request(image)
            .with_cmd(std::iter::once("postgres".to_owned()).chain(arguments))
            .with_env_var("POSTGRES_USER", ROLE)
            .with_env_var("POSTGRES_PASSWORD", PASSWORD)
            .with_env_var("POSTGRES_DB", "postgres")
            .with_env_var("PGDATA", format!("{DATA}/of-the-tests"))
            .with_mount(Mount::tmpfs_mount(DATA))
            .with_host_config_modifier(|host| {
                // The library would open a port of every address of this machine.
                host.publish_all_ports = Some(false);
                let here = PortBinding {
                    host_ip: Some("127.0.0.1".to_owned()),
                    host_port: None,
                };
                let port = format!("{POSTGRES}/tcp");
                host.port_bindings = Some(HashMap::from([(port, Some(vec![here]))]));
            })
            .start()
            .await?;
        let port = container.get_host_port_ipv4(POSTGRES.tcp()).await?;
        let started = Self { container, port };
        started.takes_connections().await?;
        Ok(Some(started))
    }

    /// What the engine calls it.
    #[must_use]
    pub fn id(&self) -> &str {
        self.container.id()
    }

    /// `postgres://…` of the database that it starts with.
    #[must_use]
    pub fn url(&self) -> String {
        let port = self.port;
        format!("postgres://{ROLE}:{PASSWORD}@127.0.0.1:{port}/postgres")
    }

    /// Leaves it running, to whoever is told what it is called.
    pub(super) fn leave(self) -> Contained {
        let left = Contained {
            id: self.container.id().to_owned(),
            port: self.port,
        };
        // Dropped, it would remove the container.
        mem::forget(self.container);
        left
    }

    /// The port is open before the server listens, and the server listens before it is whole.
    async fn takes_connections(&self) -> Result<(), Failure> {
        let until = Instant::now() + PATIENCE;
        loop {
            let failure: Failure = match tokio_postgres::connect(&self.url(), NoTls).await {
                Ok(_) => return Ok(()),
                Err(error) => error.into(),
            };
            if Instant::now() > until || !self.container.is_running().await? {
                let said = self.container.stderr_to_vec().await.unwrap_or_default();
                let said = String::from_utf8_lossy(&said).into_owned();
                return Err(format!("{failure}\n{said}").into());
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

fn request(image: &str) -> ContainerRequest<GenericImage> {
    let (name, tag) = match image.rsplit_once(':') {
        // A port of a registry is no tag.
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        _ => (image, "latest"),
    };
    GenericImage::new(name, tag)
        .with_exposed_port(POSTGRES.tcp())
        .into()
}

/// Whether an engine answers that has the image, or gets it soon.
async fn at_hand(image: &str) -> bool {
    let Ok(engine) = docker_client_instance().await else {
        return false;
    };
    if !matches!(timeout(ENGINE, engine.ping()).await, Ok(Ok(_))) {
        return false;
    }
    engine.inspect_image(image).await.is_ok()
        || matches!(timeout(PULL, request(image).pull_image()).await, Ok(Ok(_)))
}
