//! Everything that a run opens, as it is found: nothing is created. `run --check` ends here; a run creates what is missing.

use std::time::Duration;

use changefeed::Processor;
use changefeed_core::Container;
use changefeed_embedded::Engine;

use super::{Chosen, Delegate, Kind, build, copy::Target, options, webhook::Webhook};
use crate::{
    args::{ContainerName, RunArgs},
    change_line::Form,
    clock,
    exit::{Result, with_causes},
    processor_stores::FoundStores,
};

/// The containers of a run.
pub(super) struct Found {
    pub(super) stores: FoundStores,
    /// None if there is to be none, or if it is missing.
    pub(super) dead_letters: Option<Container>,
    /// That of `--copy-to`.
    pub(super) target: Option<Target>,
}

/// How long a start retries unless `--start-timeout` says otherwise, as in the library.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Between two tries to open the stores.
const PAUSE: Duration = Duration::from_millis(500);

impl Found {
    /// As [`Found::open`], and repeats it for `--start-timeout` while a store cannot be reached: hosts and their server may be
    /// started together.
    pub(super) async fn open_patiently(args: &RunArgs) -> Result<Self> {
        let limit = args.options.start_timeout.unwrap_or(START_TIMEOUT);
        let began = clock::instant();
        let mut is_first = true;
        loop {
            let error = match Self::open(args).await {
                Err(error) if is_transient(&*error) && began.elapsed() + PAUSE <= limit => error,
                opened => return opened,
            };
            if is_first {
                tracing::warn!(error = with_causes(&*error), ?limit, "the store cannot be opened yet, retrying");
            }
            is_first = false;
            clock::sleep(PAUSE).await;
        }
    }

    /// Opens the stores and the containers that are there. Refuses the arguments that a run refuses.
    pub(super) async fn open(args: &RunArgs) -> Result<Self> {
        let (processor, options) = (&args.processor, &args.options);
        let chosen = Chosen::of(&args.delegate)?;
        if let Chosen::Webhook(url) = chosen {
            Webhook::new(url, &args.delegate, &processor.name)?;
        }
        let stores = FoundStores::open(processor).await?;
        if options.all_versions {
            stores.store.check_versions(&processor.container).await?;
        }
        let dead_letters = match &options.dead_letters {
            Some(name) => stores.store.dead_letters_if_any(name, options.dead_letter_ttl.is_some()).await?,
            None => None,
        };
        let target = match chosen {
            Chosen::Copy(place) => {
                let letters = options.dead_letters.as_ref().map(|name| (name, dead_letters.as_ref()));
                let key_file = args.delegate.copy_key_file.as_ref();
                Some(Target::find((place, key_file), processor, &stores, letters).await?)
            }
            _ => None,
        };
        let found = Self { stores, dead_letters, target };
        found.processor(args).await?;
        Ok(found)
    }

    /// The processor of a run that is never started: containers in memory stand in for those that are missing.
    pub(super) async fn processor(&self, args: &RunArgs) -> Result<Processor> {
        let FoundStores { monitored, leases, lease_store, .. } = &self.stores;
        let engine = Engine::in_memory()?;
        let leases = match leases {
            Some(found) => found.clone(),
            None if lease_store.is_none() => stand_in(&engine, &args.processor.leases).await?,
            None => stand_in(&Engine::in_memory()?, &args.processor.leases).await?,
        };
        let dead_letters = match (&args.options.dead_letters, &self.dead_letters) {
            (Some(name), None) => Some(stand_in(&engine, name).await?),
            (_, found) => found.clone(),
        };
        let timing = self.stores.lease_timing();
        let builder = options::apply(&args.options, &args.processor.name, monitored, &leases, timing);
        build(args, builder, dead_letters.as_ref(), &Delegate::of(Kind::Print(Form::Json)))
    }

    pub(super) async fn close(self) -> Result<()> {
        drop(self.dead_letters);
        if let Some(target) = self.target {
            target.close().await?;
        }
        self.stores.close().await
    }
}

fn is_transient(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    error.downcast_ref::<changefeed_core::Error>().is_some_and(|error| error.kind().is_transient())
}

async fn stand_in(engine: &Engine, name: &ContainerName) -> Result<Container> {
    Ok(engine.database(&name.database).container(&name.container).open_or_create().await?)
}
