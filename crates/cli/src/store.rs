//! The store that a sub-command works on: a folder, or a server.

use std::path::Path;

use changefeed_embedded::Engine;

use crate::{args::StoreArgs, exit::Result, remote::Remote};

/// A store.
pub(crate) enum Store {
    /// In a folder that nobody else has open.
    Folder(Engine),
    /// Behind a server.
    Server(Remote),
}

impl Store {
    /// Opens what the arguments name; a folder must be there already.
    pub(crate) fn open(args: &StoreArgs) -> Result<Self> {
        if args.store.starts_with("http://") || args.store.starts_with("https://") {
            return Ok(Self::Server(Remote::new(args)?));
        }
        let folder = Path::new(&args.store);
        if !folder.is_dir() {
            let shown = folder.display();
            return Err(format!(
                "there is no folder {shown}: pass that of a store, or a URL such as http://127.0.0.1:8081"
            )
            .into());
        }
        Ok(Self::Folder(Engine::open(folder)?))
    }

    /// The store as a server, for what only servers can do.
    pub(crate) fn server(args: &StoreArgs) -> Result<Remote> {
        match Self::open(args)? {
            Self::Server(remote) => Ok(remote),
            Self::Folder(_) => Err("this needs a server: pass its URL, such as --store http://127.0.0.1:8081".into()),
        }
    }
}

/// Database and container in `database/container`.
pub(crate) fn names(container: &str) -> Result<(&str, &str)> {
    container
        .split_once('/')
        .filter(|(database, name)| !database.is_empty() && !name.is_empty() && !name.contains('/'))
        .ok_or_else(|| {
            format!("--container {container}: pass it as database/container, for example shop/orders").into()
        })
}
