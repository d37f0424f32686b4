//! The arguments that name a store, a container in it, and a processor on it.

use std::{
    fmt::{self, Display},
    path::PathBuf,
    str::FromStr,
};

use clap::{Args as Arguments, builder::NonEmptyStringValueParser};

/// Which store, and how to get in.
#[derive(Clone, Debug, Arguments)]
pub(crate) struct StoreArgs {
    /// Folder of a store that nobody else has open, the http(s):// endpoint of `changefeed serve`, or `memory`, which
    /// keeps nothing; built with the feature `cosmos` also the https:// endpoint of an account of Azure Cosmos DB or its
    /// connection string, best as a variable
    #[arg(long, value_name = "DIR|URL", env = "CHANGEFEED_STORE", help_heading = "Store", hide_env_values = true)]
    pub(crate) store: String,

    /// File with the account's key; a connection string that has a key uses its own [default: the variable CHANGEFEED_KEY,
    /// or the emulator's key on loopback]
    #[arg(long, value_name = "FILE", env = "CHANGEFEED_KEY_FILE", help_heading = "Store", hide_env_values = true)]
    pub(crate) key_file: Option<PathBuf>,

    /// PEM file with the certificate of an https:// server that is not signed by a trusted certificate [default: any, if the
    /// server is on loopback, else those of the operating system]
    #[arg(long, value_name = "FILE", env = "CHANGEFEED_CA_FILE", help_heading = "Store", hide_env_values = true)]
    pub(crate) ca_file: Option<PathBuf>,
}

/// A processor, which is a name, a monitored container and a lease container.
#[derive(Clone, Debug, Arguments)]
pub(crate) struct ProcessorArgs {
    /// Name of the processor
    #[arg(value_name = "PROCESSOR", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The monitored container, as database/container
    #[arg(long, value_name = "DB/NAME", env = "CHANGEFEED_CONTAINER", help_heading = "Store", hide_env_values = true)]
    pub(crate) container: ContainerName,

    /// The lease container, as database/container
    #[arg(long, value_name = "DB/NAME", env = "CHANGEFEED_LEASES", help_heading = "Store", hide_env_values = true)]
    pub(crate) leases: ContainerName,

    /// The store of the lease container, if it is another one
    #[arg(
        long,
        value_name = "DIR|URL",
        env = "CHANGEFEED_LEASE_STORE",
        help_heading = "Store",
        hide_env_values = true
    )]
    pub(crate) lease_store: Option<String>,

    /// File with the key of that store [default: the key of the other store]
    #[arg(
        long,
        value_name = "FILE",
        env = "CHANGEFEED_LEASE_KEY_FILE",
        requires = "lease_store",
        help_heading = "Store",
        hide_env_values = true
    )]
    pub(crate) lease_key_file: Option<PathBuf>,

    /// The one region in which leases are read and written, if they are in an account of Azure Cosmos DB that takes writes
    /// in several: the same on every host. Without it, such an account is refused
    #[arg(
        long,
        value_name = "REGION",
        env = "CHANGEFEED_WRITE_REGION",
        help_heading = "Store",
        hide_env_values = true
    )]
    pub(crate) write_region: Option<String>,
}

impl StoreArgs {
    /// Another store, with its own key or the same one, and the same certificate.
    pub(crate) fn other(&self, store: &str, key_file: Option<&PathBuf>) -> Self {
        let key_file = key_file.or(self.key_file.as_ref()).cloned();
        Self { store: store.to_owned(), key_file, ..self.clone() }
    }
}

/// The names of a database and of a container in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerName {
    pub(crate) database: String,
    pub(crate) container: String,
}

impl Display for ContainerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.database, self.container)
    }
}

impl FromStr for ContainerName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split_once('/')
            .filter(|(database, name)| !database.is_empty() && !name.is_empty() && !name.contains('/'))
            .map(|(database, name)| Self { database: database.to_owned(), container: name.to_owned() })
            .ok_or_else(|| "pass it as database/container, for example shop/orders".to_owned())
    }
}
