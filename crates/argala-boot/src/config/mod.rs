//! What the operator chose: defaults, then a file, then the environment, then the command line.
//!
//! Every fault is told at once, each with where it stands, and none with the value of a secret.

mod check;
mod layers;
mod model;
mod print;
mod values;

use std::{
    fmt,
    path::{Path, PathBuf},
};

pub(crate) use check::secret_bytes;
pub use model::{
    Admin, Auth, AuthKind, Blobs, BlobsKind, Config, DeliveryKind, Directory, DirectoryKind, Http,
    Jwt, Limiter, LimiterKind, Log, LogFormat, Pokes, PokesKind, QuotaKeys, RateKeys,
    RateLimitKeys, Relay, Shutdown, StatementsKind, Store, StoreKind, Sweep, TimeoutsKind,
};
pub use values::{Network, OneOrMany, Size, Span};

use check::Purpose;
use layers::Layers;

/// The documented defaults, as they are compiled in.
pub const DEFAULTS: &str = include_str!("../default.toml");

/// What a variable of the environment begins with to be a setting.
pub const VARIABLE_PREFIX: &str = "ARGALA__";

/// The variable that must be `1` before anybody is believed without proof.
pub const DEV_AUTH_VARIABLE: &str = "ARGALA_DEV_AUTH";

/// Where a value was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The defaults of this build, or of the command.
    Default,
    /// A line of a file, counted from 1.
    File(PathBuf, usize),
    /// A variable of the environment.
    Variable(String),
    /// A flag of the command line.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("defaults"),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// One thing that is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where it stands; `None` for what was given nowhere.
    pub origin: Option<Origin>,
    /// The key at fault, as `section.key`; empty where it is the file.
    pub key: String,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(f, "{origin}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// Everything that is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
pub struct ConfigError {
    /// At least one fault, those of the file in the order of its lines.
    pub faults: Vec<Fault>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, fault) in self.faults.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}

/// Where the settings of one process come from, weakest first.
/// Not to be printed: the environment holds secrets of everybody's.
#[derive(Clone, Default)]
pub struct Sources {
    /// What a command wants otherwise than the defaults: `("log.format", "text")`.
    pub preset: Vec<(&'static str, String)>,
    /// A file.
    pub file: Option<PathBuf>,
    /// The environment's variables; those without [`VARIABLE_PREFIX`] are not looked at.
    pub variables: Vec<(String, String)>,
    /// Flags: the key, the value and the flag's name.
    pub flags: Vec<(String, String, &'static str)>,
    /// Whether a caller may be believed without proof.
    pub dev_auth: bool,
    /// Whether nobody will call at all: an operator's command does not need to know callers.
    pub operating: bool,
}

impl Sources {
    /// Those of this process: `file`, where one is named, and the environment.
    ///
    /// A variable that is not UTF-8 is no setting.
    #[must_use]
    pub fn of_process(file: Option<&Path>) -> Self {
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| name.starts_with(VARIABLE_PREFIX))
            .collect();
        Self {
            file: file.map(Path::to_path_buf),
            variables,
            dev_auth: dev_auth_is_allowed(),
            ..Self::default()
        }
    }

    /// Puts the layers on top of each other and checks what comes out.
    ///
    /// # Errors
    /// [`ConfigError`] with every fault there is.
    pub fn load(&self) -> Result<Loaded, ConfigError> {
        let mut layers = Layers::new();
        for (key, value) in &self.preset {
            layers.text(key, value, &Origin::Default);
        }
        if let Some(file) = &self.file {
            layers.file(file);
        }
        for (name, value) in &self.variables {
            if let Some(key) = name.strip_prefix(VARIABLE_PREFIX) {
                let key = key.to_ascii_lowercase().replace("__", ".");
                layers.text(&key, value, &Origin::Variable(name.clone()));
            }
        }
        for (key, value, flag) in &self.flags {
            layers.text(key, value, &Origin::Flag(flag));
        }
        layers.finish(Purpose {
            dev_auth: self.dev_auth,
            operating: self.operating,
        })
    }
}

/// Whether the environment allows that callers are believed without proof.
#[must_use]
pub fn dev_auth_is_allowed() -> bool {
    std::env::var_os(DEV_AUTH_VARIABLE).is_some_and(|value| value == "1")
}

/// A configuration that passed every check.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    layers: Layers,
}

impl Loaded {
    /// The settings as TOML, secrets redacted; what is not a default tells where it was given.
    #[must_use]
    pub fn to_toml(&self) -> String {
        print::toml(&self.layers)
    }

    /// The settings as JSON, secrets redacted.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        print::json(&self.layers)
    }
}

impl Default for Config {
    /// `default.toml`, which is checked by a test to be complete.
    fn default() -> Self {
        toml::from_str(DEFAULTS).expect("the defaults are a configuration")
    }
}
