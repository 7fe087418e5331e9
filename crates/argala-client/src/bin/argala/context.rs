//! What every command needs: the relay, the key file, the output.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use argala_client::{Client, Credential, Error, Kind, Session, api::Retry, sync};
use argala_wire::{codec, devices::DeviceRef};

use crate::{
    args::{Encoding, Globals},
    exit::Failure,
    output::{self, Output},
    progress,
};

/// The kind that `push` writes unless told otherwise.
pub(crate) const TEXT: &str = "text";
/// The kinds that this command reads, beside those of the folder sync: every command of it is the
/// same application, so that none refuses what another wrote.
const KINDS: [&str; 2] = [TEXT, "json"];

/// What every command needs.
pub(crate) struct Context {
    globals: Globals,
    /// Where results go.
    pub(crate) output: Output,
}

fn read_token(path: &Path) -> Result<Credential, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(Error::io(format!("the token file {}", path.display())))?;
    Ok(Credential::bearer(&text)?)
}

impl Context {
    pub(crate) fn new(globals: Globals) -> Result<Self, Failure> {
        let output = Output::new(globals.output);
        Ok(Self { globals, output })
    }

    /// Who the command speaks as.
    pub(crate) fn credential(&self) -> Result<Credential, Failure> {
        let globals = &self.globals;
        match (&globals.dev, &globals.token, &globals.token_file) {
            (Some(dev), _, _) => Ok(Credential::dev(dev)?),
            (_, Some(token), _) => Ok(Credential::bearer(token)?),
            (_, _, Some(path)) => read_token(path),
            (None, None, None) => Err(Failure::usage(
                "say who you are: --token-file, ARGALA_TOKEN, or --dev for a dev server",
            )),
        }
    }

    /// Who the recovery device is spoken to as: by a token of its own, or as a dev server's
    /// device.
    pub(crate) fn recovery_credential(
        &self,
        given: &crate::args::RecoveryCredential,
        device: &DeviceRef,
    ) -> Result<Credential, Failure> {
        match (&given.recovery_token, &given.recovery_token_file) {
            (Some(token), _) => Ok(Credential::bearer(token)?),
            (None, Some(path)) => read_token(path),
            (None, None) if self.globals.dev.is_some() => Ok(Credential::Dev(device.clone())),
            (None, None) => Err(Failure::usage(format!(
                "a token of the recovery device {}/{} is needed: --recovery-token-file",
                device.member_id, device.device_id
            ))),
        }
    }

    /// The relay, spoken to as `credential`.
    pub(crate) fn client(&self, credential: &Credential) -> Result<Client, Failure> {
        let format = match self.globals.encoding {
            Encoding::Json => codec::Format::Json,
            Encoding::Cbor => codec::Format::Cbor,
        };
        let retry = Retry {
            tries: self.globals.tries,
            ..Retry::default()
        };
        let client = Client::new(&self.globals.url, credential)?;
        Ok(client.with_format(format).with_retry(retry))
    }

    /// Where the key file lies.
    pub(crate) fn key_file(&self) -> Result<PathBuf, Failure> {
        if let Some(path) = &self.globals.keyfile {
            return Ok(path.clone());
        }
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let folder = set("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".config")));
        let none = || Failure::usage("say where the key file lies: --keyfile or ARGALA_KEYFILE");
        Ok(folder.ok_or_else(none)?.join("argala").join("device.keys"))
    }

    /// How long to wait for another process that uses the key file.
    pub(crate) fn patience(&self) -> Duration {
        self.globals.lock_timeout
    }

    /// The device that the command line says this is, where it says so.
    fn named(&self, credential: &Credential) -> Option<DeviceRef> {
        self.globals.device.clone().or_else(|| credential.device())
    }

    fn dress(&self, session: Session) -> Session {
        let format = self.globals.output;
        session
            .declare(KINDS.into_iter().filter_map(Kind::new))
            .declare([sync::file_kind(), sync::folder_kind()])
            .observe(Arc::new(move |event| output::event(format, event)))
    }

    /// Whether a progress bar is to be shown: never where nobody looks on.
    pub(crate) fn wants_bar(&self) -> bool {
        self.output.has_terminal() && !self.globals.quiet
    }

    /// The session, with a bar for each file that it transfers.
    pub(crate) fn with_bar(&self, session: Session) -> Session {
        if self.wants_bar() {
            session.report_progress(progress::bar())
        } else {
            session
        }
    }

    /// A session over the key file that is there.
    pub(crate) async fn session(&self) -> Result<Session, Failure> {
        let credential = self.credential()?;
        let client = self.client(&credential)?;
        let session = Session::open(client, &self.key_file()?, self.patience()).await?;
        let is = session.key_file().device();
        match self.named(&credential) {
            Some(named) if named != *is => Err(Failure::usage(format!(
                "the key file is that of {}/{}, and you speak as {}/{}",
                is.member_id, is.device_id, named.member_id, named.device_id
            ))),
            _ => Ok(self.dress(session)),
        }
    }

    /// A session over the key file, which is made where there is none; and whether it was made.
    pub(crate) async fn session_or_new(&self) -> Result<(Session, bool), Failure> {
        let path = self.key_file()?;
        if path.exists() {
            return Ok((self.session().await?, false));
        }
        let credential = self.credential()?;
        let device = self.named(&credential).ok_or_else(|| {
            Failure::usage("the token does not say which device this is: --as MEMBER/DEVICE")
        })?;
        let client = self.client(&credential)?;
        let session = Session::create(client, &path, device, self.patience()).await?;
        Ok((self.dress(session), true))
    }
}
