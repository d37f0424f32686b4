//! The archive of a processor: all its documents as one JSON text, to be kept or moved.

use changefeed_core::{ContainerIdentity, Error, ErrorKind, Result, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::handle::Control;

/// What the member `format` says.
const FORMAT: &str = "changefeed-leases";

/// The version of the archive itself, not of the documents in it.
const VERSION: u32 = 1;

/// The dialect of the documents: that of this crate, which is the one of the .NET SDK, version 3, with `cf.` properties.
const DIALECT: &str = "changefeed";

/// What a store adds to every item: it belongs to the store, not to the document. The time of the last write is kept, since
/// leases that hosts of the .NET SDK created begin there until their first change.
const SYSTEM: [&str; 5] = ["_rid", "_self", "_etag", "_attachments", "_lsn"];

/// All documents of a processor, with where they come from. Made by [`Control::export`], written back by
/// [`Control::import`]. As JSON it is an object with the members below and `format`, `version` and `dialect`; a reader
/// refuses versions and dialects that it does not know.
///
/// ```
/// use changefeed::LeaseArchive;
///
/// # async fn example(control: changefeed::Control) -> changefeed::core::Result<()> {
/// let text = control.export().await?.to_json(); // to be kept, for example in a file
/// let archive = LeaseArchive::from_json(text.as_bytes())?;
/// println!("{} leases of processor {}", archive.leases.len(), archive.processor);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LeaseArchive {
    format: String,
    version: u32,
    /// How the documents are written: `changefeed`.
    pub dialect: String,
    /// The processor whose leases these are.
    pub processor: String,
    /// The monitored container.
    pub monitored: ArchivedContainer,
    /// The document that says where the processor began; none if a host of another implementation made no such document.
    pub info: Option<Value>,
    /// The leases, by id, as they are stored. They and `info` have the time at which they were last written (`_ts`), which
    /// earlier versions left out, and no other member of the store.
    pub leases: Vec<Value>,
}

/// Where the positions in an archive belong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ArchivedContainer {
    /// The identity of its store.
    pub store: String,
    /// The account host, which is part of every lease id.
    pub account_host: String,
    /// The name of its database.
    pub database: String,
    /// Its name.
    pub container: String,
    /// Its resource id, which tells it from a later container of the same name.
    pub resource_id: String,
}

impl LeaseArchive {
    /// Reads an archive.
    ///
    /// # Errors
    /// `InvalidArgument` if it is none, or of a version or dialect that this version does not know.
    pub fn from_json(text: &[u8]) -> Result<Self> {
        let refused = |message: String| Error::new(ErrorKind::InvalidArgument, message);
        let no_archive = "this is no archive of leases: pass a file that `leases export` wrote";
        let value: Value =
            serde_json::from_slice(text).map_err(|error| refused(no_archive.to_owned()).with_source(error))?;
        if value.get("format").and_then(Value::as_str) != Some(FORMAT) {
            return Err(refused(no_archive.to_owned()));
        }
        match value.get("version").and_then(Value::as_u64) {
            Some(version) if version == u64::from(VERSION) => {}
            version => {
                let version = version.map_or_else(|| "no version".to_owned(), |version| format!("version {version}"));
                return Err(refused(format!(
                    "the archive has {version}, but this program knows {VERSION} only: use the program that wrote it"
                )));
            }
        }
        let archive: Self = serde_json::from_value(value)
            .map_err(|error| refused("the archive of leases is damaged".to_owned()).with_source(error))?;
        if archive.info.as_ref().is_some_and(|info| !info.is_object()) {
            return Err(refused(
                "the archive of leases is damaged: its .info document is not a JSON object".to_owned(),
            ));
        }
        if archive.dialect != DIALECT {
            return Err(refused(format!(
                "the archive holds leases in the dialect {:?}, but this program knows {DIALECT:?} only",
                archive.dialect
            )));
        }
        Ok(archive)
    }

    /// Returns the archive as JSON for people: two spaces of indentation and a line feed at the end.
    pub fn to_json(&self) -> String {
        let mut text =
            serde_json::to_string_pretty(self).expect("invariant: texts and JSON that was read always serialise");
        text.push('\n');
        text
    }
}

impl Control {
    /// Reads all documents of the processor. Hosts may be running: leases are read one after the other, each as it is
    /// at that moment. The lock of a bootstrap is left out.
    ///
    /// # Errors
    /// `ItemNotFound` if there is no such processor, `Corrupt` if a document is not JSON, and those of the stores.
    pub async fn export(&self) -> Result<LeaseArchive> {
        // Says which processors there are if there is none of this name.
        let (store, identity) = match self.snapshot().await {
            Ok(snapshot) => (snapshot.store, snapshot.monitored.identity().clone()),
            // An archive keeps documents as they are, whether they can be read or not.
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                (self.lease_store()?, self.processor.monitored().identity().clone())
            }
            Err(error) => return Err(error),
        };
        let info_id = store.prefix().info_id();
        let info = store.read_raw(&info_id, store.partition_key_field(&info_id).as_deref()).await?;
        let info = info.map(|item| document(item.id.as_str(), &item.body)).transpose()?;
        let mut items = store.container().list(&store.prefix().leases()).await?;
        items.sort_by(|a, b| a.id.cmp(&b.id));
        let leases = items.iter().map(|item| document(item.id.as_str(), &item.body)).collect::<Result<_>>()?;
        let (processor, monitored) = (self.processor.name.clone(), archived(&identity));
        let (format, dialect) = (FORMAT.to_owned(), DIALECT.to_owned());
        Ok(LeaseArchive { format, version: VERSION, dialect, processor, monitored, info, leases })
    }
}

/// How an archive names a container.
pub(super) fn archived(identity: &ContainerIdentity) -> ArchivedContainer {
    ArchivedContainer {
        store: identity.store.as_str().to_owned(),
        account_host: identity.account_host.clone(),
        database: identity.database_name.clone(),
        container: identity.container_name.clone(),
        resource_id: identity.container.to_string(),
    }
}

/// When a document of an archive was last written, if the archive says so.
pub(super) fn written_at(document: &Value) -> Option<Timestamp> {
    document.get("_ts").and_then(Value::as_u64).filter(|seconds| *seconds > 0).map(Timestamp::from_secs)
}

fn document(id: &str, body: &[u8]) -> Result<Value> {
    let mut members: Map<String, Value> = serde_json::from_slice(body).map_err(|error| {
        Error::new(ErrorKind::Corrupt, format!("document {id} is no JSON object")).with_source(error)
    })?;
    SYSTEM.iter().for_each(|name| drop(members.remove(*name)));
    Ok(Value::Object(members))
}
