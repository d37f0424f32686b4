//! The containers in use: found by name or resource id, kept until the store reports that they are gone.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use changefeed_core::{Catalog, Clock, Container, ResourceId, Result};
use parking_lot::{Mutex, RwLock};
use serde_json::{Map, Value};

use super::{
    handle::ContainerHandle,
    previous_images::{PREVIOUS_IMAGE_POLICY, PreviousImages},
    unique_keys::{UNIQUE_KEY_POLICY, UniqueBackend, UniqueKeys},
};

/// Handles of containers, by the segments of the path under which they were asked for.
#[derive(Debug)]
pub(crate) struct ContainerCache {
    catalog: Arc<dyn Catalog>,
    clock: Arc<dyn Clock>,
    /// Of containers without a policy.
    previous_images: PreviousImages,
    handles: RwLock<BTreeMap<String, BTreeMap<String, Arc<ContainerHandle>>>>,
    /// Containers with unique keys: all handles of one share the locks that serialize its writes.
    unique: Mutex<BTreeMap<ResourceId, Weak<UniqueBackend>>>,
}

impl ContainerCache {
    pub(crate) fn new(catalog: Arc<dyn Catalog>, clock: Arc<dyn Clock>, previous_images: PreviousImages) -> Self {
        Self { catalog, clock, previous_images, handles: RwLock::new(BTreeMap::new()), unique: Mutex::default() }
    }

    /// Returns the container under these segments of a path, which are names or resource ids.
    pub(crate) async fn get(&self, database: &str, container: &str) -> Result<Arc<ContainerHandle>> {
        if let Some(handle) = self.handles.read().get(database).and_then(|of_database| of_database.get(container)) {
            return Ok(Arc::clone(handle));
        }
        let found = match self.catalog.container(database, container).await {
            Err(error) => match self.names_of(database, container).await? {
                Some((database, container)) => self.catalog.container(&database, &container).await?,
                None => return Err(error),
            },
            Ok(found) => found,
        };
        let members = self.members(&found).await?;
        let found = self.with_unique_keys(found, &members);
        // A policy that was stored by other means and is not valid counts as none.
        let images = PreviousImages::parse(members.get(PREVIOUS_IMAGE_POLICY)).ok().flatten();
        let images = images.unwrap_or(self.previous_images);
        let handle = Arc::new(ContainerHandle::new(found, Arc::clone(&self.clock), images));
        self.handles.write().entry(database.to_owned()).or_default().insert(container.to_owned(), Arc::clone(&handle));
        Ok(handle)
    }

    /// Returns the container with its unique keys enforced, if it has any.
    fn with_unique_keys(&self, container: Container, members: &Map<String, Value>) -> Container {
        let identity = container.identity();
        // A policy that was stored by other means and is not valid has no keys.
        let keys = UniqueKeys::parse(members.get(UNIQUE_KEY_POLICY)).unwrap_or_default();
        if keys.is_empty() {
            return container;
        }
        let mut unique = self.unique.lock();
        unique.retain(|_, backend| backend.strong_count() > 0);
        let known = unique.get(&identity.container).and_then(Weak::upgrade);
        let backend = known.unwrap_or_else(|| {
            let backend = Arc::new(UniqueBackend::new(container.backend(), keys));
            unique.insert(identity.container, Arc::downgrade(&backend));
            backend
        });
        Container::new(backend)
    }

    /// Reads the members of a container that the store does not interpret.
    async fn members(&self, container: &Container) -> Result<Map<String, Value>> {
        let identity = container.identity();
        let all = self.catalog.list_containers(&identity.database_name).await?;
        let info = all.into_iter().find(|info| info.rid == identity.container);
        Ok(info.map(|info| info.spec.extra).unwrap_or_default())
    }

    /// Drops all handles of a container that is gone or has changed.
    pub(crate) fn forget(&self, rid: &ResourceId) {
        for of_database in self.handles.write().values_mut() {
            of_database.retain(|_, handle| handle.identity().container != *rid);
        }
    }

    /// Drops all handles: databases or containers were deleted.
    pub(crate) fn forget_all(&self) {
        self.handles.write().clear();
    }

    /// Returns the name of the database under a segment of a path.
    pub(crate) async fn database_name(&self, segment: &str) -> Result<String> {
        let Ok(rid) = segment.parse::<ResourceId>() else { return Ok(segment.to_owned()) };
        let databases = self.catalog.list_databases().await?;
        if databases.iter().any(|database| database.name == segment) {
            return Ok(segment.to_owned());
        }
        Ok(databases.into_iter().find(|database| database.rid == rid).map_or(segment.to_owned(), |found| found.name))
    }

    async fn names_of(&self, database: &str, container: &str) -> Result<Option<(String, String)>> {
        let database_name = self.database_name(database).await?;
        let Ok(rid) = container.parse::<ResourceId>() else {
            return Ok((database_name != database).then(|| (database_name, container.to_owned())));
        };
        let Ok(containers) = self.catalog.list_containers(&database_name).await else { return Ok(None) };
        let found = containers.into_iter().find(|info| info.rid == rid || info.spec.name == container);
        Ok(found.map(|info| (database_name, info.spec.name)))
    }
}
