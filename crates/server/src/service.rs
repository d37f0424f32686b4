//! From a request to its answer: who asks, about what, and who answers.

use std::{sync::Arc, time::Duration};

use changefeed_core::{Catalog, Clock, ContainerInfo, ContainerSpec, DatabaseInfo, DatabaseSpec, Mode};
use hyper::{
    Method, StatusCode,
    header::{self, HeaderValue},
};
use parking_lot::RwLock;
use serde_json::{Value, json};

use crate::{
    account, admin,
    auth::{self, Access, Keys, Signed},
    batch,
    contract::watch::Watches,
    exchange::{Reply, Request},
    faults::{Faults, Trouble},
    feed, host_check, items, lists, names, offers,
    open::{Containers, Open},
    partition_key_delete,
    path::Target,
    problem::{Answer, Problem, substatus},
    query, session,
    storage::Storage,
    unique_keys::{UNIQUE_KEY_POLICY, UniqueKeys},
};

/// Everything that answers need.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) containers: Containers,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) keys: RwLock<Keys>,
    pub(crate) account: String,
    /// How many ranges a new container begins with; none if that follows its throughput.
    pub(crate) ranges: Option<usize>,
    /// How long all-versions mode looks back in containers that do not say.
    pub(crate) retention: Option<Duration>,
    pub(crate) faults: Faults,
    pub(crate) faults_allowed: bool,
    pub(crate) watches: Watches,
    /// Names beside localhost under which the server is reached.
    pub(crate) account_hosts: Vec<String>,
    pub(crate) storage: Option<Arc<dyn Storage>>,
    /// A page of a query ends after this time.
    pub(crate) query_time: Duration,
    pub(crate) workers: query::Workers,
    pub(crate) kept_queries: query::KeptQueries,
}

impl Service {
    /// The answer to a request, whatever it is.
    pub(crate) async fn answer(&self, request: &Request<'_>, raw_path: &str, access: Access) -> Answer<Reply> {
        if access == Access::ReadOnly && !is_read(request) {
            return Err(Problem::new(StatusCode::FORBIDDEN, "this key may read but not write: use another"));
        }
        let trouble = self.faults.trouble(request.method.as_str(), raw_path, &request.path, &*self.clock);
        let reply = match trouble {
            Some(Trouble::Before(problem)) => Err(problem),
            Some(Trouble::After(problem)) => self.route(request).await.and(Err(problem)),
            None => self.route(request).await,
        };
        reply.map(|mut reply| {
            reply.set_text(&header::CONTENT_LOCATION, &format!("{}{raw_path}", request.endpoint()));
            reply
        })
    }

    /// What a request may do. Looks at its headers only.
    pub(crate) fn authorize(&self, request: &Request<'_>) -> Answer<Access> {
        if self.keys.read().has_emulator_key() {
            host_check::check(&request.headers, request.authority, &self.account_hosts)?;
        }
        let text = |name| request.headers.get(name).and_then(|value| value.to_str().ok());
        let signed = Signed {
            authorization: text(&header::AUTHORIZATION),
            ms_date: text(&names::MS_DATE),
            date: text(&header::DATE),
        };
        auth::authorize(&self.keys.read(), request.method.as_str(), &request.path, signed, self.clock.wall()).map_err(
            |refusal| {
                let status = match refusal {
                    auth::Refusal::Skewed => StatusCode::FORBIDDEN,
                    _ => StatusCode::UNAUTHORIZED,
                };
                Problem::new(status, refusal.message())
            },
        )
    }

    /// A future is as large as the largest that it may wait for, and it is moved on its way to being polled: what is
    /// asked seldom, or takes long anyway, is boxed here and in [`Self::inside_open`].
    async fn route(&self, request: &Request<'_>) -> Answer<Reply> {
        match &request.path.target {
            Target::Account => {
                only(request, &Method::GET)?;
                let mut reply = Reply::json(StatusCode::OK, &account::account(&self.account, &request.endpoint()));
                for (name, value) in account::STORAGE_HEADERS {
                    reply.headers.insert(name, HeaderValue::from_static(value));
                }
                Ok(reply)
            }
            Target::Databases => Box::pin(self.databases(request)).await,
            Target::Database(database) => Box::pin(self.database(request, database)).await,
            Target::Users(database, None) if request.method == Method::GET => {
                let info = Box::pin(self.database_info(database)).await?;
                empty_feed(request, &info.rid.to_string(), "Users")
            }
            Target::Users(database, user) => {
                Box::pin(self.database_info(database)).await?;
                match (&request.method, user) {
                    (&Method::GET | &Method::DELETE, Some(user)) => {
                        Err(Problem::not_found(format!("there is no user {user}: users are not supported")))
                    }
                    _ => Err(Problem::bad_request(
                        "users and permissions are not supported: clients sign with the account's keys",
                    )),
                }
            }
            Target::Containers(database) => Box::pin(self.containers(request, database)).await,
            Target::Container(database, container) => Box::pin(self.container(request, database, container)).await,
            Target::Offers => Box::pin(offers::list(self, request)).await,
            Target::Offer(id) => Box::pin(offers::one(self, request, id)).await,
            Target::Admin(name) => Box::pin(admin::call(self, request, name)).await,
            Target::Items(database, container)
            | Target::Item(database, container, _)
            | Target::Ranges(database, container)
            | Target::PartitionKeyDelete(database, container)
            | Target::Scripts(database, container, ..) => self.inside(request, database, container).await,
        }
    }

    /// Answers about what lies inside a container. A handle that turns out to be of a container that was deleted is
    /// forgotten, and the name looked up once more.
    async fn inside(&self, request: &Request<'_>, database: &str, container: &str) -> Answer<Reply> {
        let open = self.containers.get(database, container).await?;
        match self.inside_open(request, &open).await {
            Err(problem) if problem.substatus == Some(substatus::OWNER_MISSING) => {
                self.containers.forget(&open.identity().container);
                let open = self.containers.get(database, container).await?;
                self.inside_open(request, &open).await
            }
            Err(problem) => Err(Box::pin(items::placed(problem, request, &open)).await),
            Ok(reply) => Ok(reply),
        }
    }

    async fn inside_open(&self, request: &Request<'_>, open: &Arc<Open>) -> Answer<Reply> {
        if let Some(intended) = request.text(&names::INTENDED_COLLECTION)?
            && intended != open.rid
        {
            return Err(Problem::bad_request(format!(
                "the request is meant for container {intended}, but {} is {} now",
                open.name_link, open.rid
            ))
            .substatus(substatus::OTHER_CONTAINER));
        }
        if let Some(tokens) = request.text(&names::SESSION_TOKEN)? {
            let seen = session::newest_seen(tokens)?;
            if seen > open.reached() && seen > Box::pin(open.newest()).await? {
                let message = format!("the read session is not available: it has seen {seen}, which is not here");
                return Err(Problem::not_found(message).substatus(substatus::READ_SESSION_NOT_AVAILABLE));
            }
        }
        if !is_read(request) {
            refuse_triggers(request)?;
        }
        match (&request.path.target, &request.method) {
            (Target::Ranges(..), &Method::GET) => Box::pin(ranges(request, open)).await,
            (Target::Scripts(.., kind, None), &Method::GET) => empty_feed(request, &open.rid, script_member(kind)),
            (Target::Scripts(.., kind, Some(id)), &Method::GET | &Method::DELETE) => {
                Err(Problem::not_found(format!("there is nothing called {id} among the {}", script_words(kind))))
            }
            (Target::Scripts(.., kind, _), _) if is_query(request) => empty_query(&open.rid, script_member(kind)),
            (Target::Scripts(.., kind, _), _) => Err(Problem::bad_request(format!(
                "{} are not supported: run such code in a change feed processor",
                script_words(kind)
            ))),
            (Target::Items(..), &Method::GET) => match feed::mode(request)? {
                Some(mode) => feed::read(request, open, mode).await,
                None => Box::pin(lists::read(request, open)).await,
            },
            (Target::Items(..), &Method::POST) if request.flag(&names::IS_BATCH) => {
                Box::pin(batch::run(request, open)).await
            }
            (Target::Items(..), &Method::POST) if request.flag(&names::IS_QUERY_PLAN) => {
                Box::pin(query::plan(self, request, open)).await
            }
            (Target::Items(..), &Method::POST) if is_query(request) => {
                Box::pin(query::items(self, request, open)).await
            }
            (Target::Items(..), &Method::POST) => items::create(request, open).await,
            (Target::PartitionKeyDelete(..), &Method::POST) => Box::pin(partition_key_delete::run(request, open)).await,
            (Target::Item(.., id), &Method::GET) => items::read(request, open, id).await,
            (Target::Item(.., id), &Method::PUT) => items::replace(request, open, id).await,
            (Target::Item(.., id), &Method::PATCH) => Box::pin(items::patch(request, open, id)).await,
            (Target::Item(.., id), &Method::DELETE) => items::delete(request, open, id).await,
            (_, method) => Err(Problem::method_not_allowed(method.as_str())),
        }
    }

    async fn databases(&self, request: &Request<'_>) -> Answer<Reply> {
        match request.method {
            Method::POST if !is_query(request) => {
                let body: Value = parse(request)?;
                let mut spec = DatabaseSpec::new(account::resource_name(body.get("id"))?);
                offers::set_throughput(&mut spec.extra, offers::asked(request)?);
                let info = self.catalog.create_database(spec).await.map_err(|error| Problem::from_catalog(&error))?;
                let reply = Reply::json(StatusCode::CREATED, &account::database(&info));
                Ok(reply.with_etag(&account::database_etag(&info)))
            }
            Method::GET | Method::POST => {
                let all = self.catalog.list_databases().await?;
                let all: Vec<Value> = all.iter().map(account::database).collect();
                query::resources(request, "", "Databases", &all, self.clock.wall())
            }
            _ => Err(Problem::method_not_allowed(request.method.as_str())),
        }
    }

    async fn database_info(&self, segment: &str) -> Answer<DatabaseInfo> {
        let name = self.containers.database_name(segment).await?;
        let found = self.catalog.list_databases().await?.into_iter().find(|info| info.name == name);
        found.ok_or_else(|| Problem::not_found(format!("there is no database {segment}: create it first")))
    }

    async fn database(&self, request: &Request<'_>, segment: &str) -> Answer<Reply> {
        let info = self.database_info(segment).await?;
        match request.method {
            Method::GET => {
                let mut reply = Reply::json(StatusCode::OK, &account::database(&info));
                reply.set_text(&names::CONTENT_PATH, &info.rid.to_string());
                Ok(reply.with_etag(&account::database_etag(&info)))
            }
            Method::DELETE => {
                check_if_match(request, &account::database_etag(&info))?;
                self.catalog.delete_database(&info.name).await.map_err(|error| Problem::from_catalog(&error))?;
                self.containers.forget_all();
                Ok(Reply::new(StatusCode::NO_CONTENT, ""))
            }
            _ => Err(Problem::method_not_allowed(request.method.as_str())),
        }
    }

    async fn containers(&self, request: &Request<'_>, segment: &str) -> Answer<Reply> {
        let database = self.database_info(segment).await.map_err(|problem| match problem.status {
            StatusCode::NOT_FOUND => problem.substatus(substatus::OWNER_MISSING),
            _ => problem,
        })?;
        match request.method {
            Method::POST if !is_query(request) => {
                let throughput = offers::asked(request)?;
                let ranges = self.ranges.unwrap_or_else(|| offers::ranges(throughput));
                let mut spec = account::container_spec(&request.body, ranges, self.retention)?;
                offers::set_throughput(&mut spec.extra, throughput);
                let created = self.catalog.create_container(&database.name, spec).await;
                let info = created.map_err(|error| Problem::from_catalog(&error))?;
                Ok(written_container(StatusCode::CREATED, &info, &database.name))
            }
            Method::GET | Method::POST => {
                let all = self.catalog.list_containers(&database.name).await?;
                let all: Vec<Value> = all.iter().map(account::container).collect();
                query::resources(request, &database.rid.to_string(), "DocumentCollections", &all, self.clock.wall())
            }
            _ => Err(Problem::method_not_allowed(request.method.as_str())),
        }
    }

    async fn container(&self, request: &Request<'_>, database: &str, container: &str) -> Answer<Reply> {
        let missing = || Problem::not_found(format!("there is no container {container} in database {database}"));
        let database = self.database_info(database).await.map_err(|problem| match problem.status {
            StatusCode::NOT_FOUND => problem.substatus(substatus::OWNER_MISSING),
            _ => problem,
        })?;
        let all = self.catalog.list_containers(&database.name).await?;
        let named = all.iter().find(|info| info.spec.name == *container);
        let info = named.or_else(|| all.iter().find(|info| info.rid.to_string() == *container)).ok_or_else(missing)?;
        let name = &info.spec.name;
        match request.method {
            Method::GET => Ok(shown_container(StatusCode::OK, info, &database.name)),
            Method::PUT => {
                check_if_match(request, &account::container_etag(info))?;
                let mut spec = account::container_spec(&request.body, info.spec.ranges, self.retention)?;
                if spec.name != *name {
                    return Err(Problem::bad_request(format!("the body names {}, but the path {name}", spec.name)));
                }
                keep_unique_keys(&mut spec, &info.spec)?;
                offers::keep_throughput(&mut spec.extra, &info.spec.extra);
                let replaced = self.catalog.replace_container(&database.name, spec).await;
                let info = replaced.map_err(|error| Problem::from_catalog(&error))?;
                self.containers.forget(&info.rid);
                Ok(written_container(StatusCode::OK, &info, &database.name))
            }
            Method::DELETE => {
                check_if_match(request, &account::container_etag(info))?;
                let deleted = self.catalog.delete_container(&database.name, name).await;
                deleted.map_err(|error| Problem::from_catalog(&error))?;
                self.containers.forget(&info.rid);
                Ok(Reply::new(StatusCode::NO_CONTENT, ""))
            }
            _ => Err(Problem::method_not_allowed(request.method.as_str())),
        }
    }
}

fn only(request: &Request<'_>, method: &Method) -> Answer<()> {
    if request.method == *method { Ok(()) } else { Err(Problem::method_not_allowed(request.method.as_str())) }
}

fn parse(request: &Request<'_>) -> Answer<Value> {
    serde_json::from_slice(&request.body)
        .map_err(|error| Problem::bad_request(format!("the body is not JSON: {error}")))
}

fn is_query(request: &Request<'_>) -> bool {
    let is_query_body = request
        .headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().to_ascii_lowercase().starts_with(b"application/query+json"));
    request.flag(&names::IS_QUERY) || is_query_body
}

/// Whether a request changes nothing. What a `POST` is has to be decided here as where it is carried out: a batch that
/// also calls itself a query is a batch.
fn is_read(request: &Request<'_>) -> bool {
    match (&request.method, &request.path.target) {
        (&Method::GET | &Method::HEAD, _) => true,
        (&Method::POST, Target::Items(..)) => {
            !request.flag(&names::IS_BATCH) && (request.flag(&names::IS_QUERY_PLAN) || is_query(request))
        }
        (&Method::POST, Target::Databases | Target::Containers(_)) => is_query(request),
        (&Method::POST, Target::Offers) => true,
        (&Method::POST, Target::Admin(name)) => {
            changefeed_protocol::Target::parse(name).is_some_and(|target| target.is_read())
        }
        _ => false,
    }
}

/// Unique keys are made with a container and stay as they are.
fn keep_unique_keys(spec: &mut ContainerSpec, old: &ContainerSpec) -> Answer<()> {
    let Some(policy) = old.extra.get(UNIQUE_KEY_POLICY) else {
        return match UniqueKeys::parse(spec.extra.get(UNIQUE_KEY_POLICY))?.is_empty() {
            true => Ok(()),
            false => Err(Problem::bad_request("Unique keys cannot be added to a container: create another one")),
        };
    };
    let given = spec.extra.entry(UNIQUE_KEY_POLICY).or_insert_with(|| policy.clone());
    if UniqueKeys::parse(Some(given))? != UniqueKeys::parse(Some(policy))? {
        return Err(Problem::bad_request("Unique keys of a container cannot be modified: create another one"));
    }
    Ok(())
}

/// There are no triggers here; a write that names one must not be performed without it.
fn refuse_triggers(request: &Request<'_>) -> Answer<()> {
    for header in [&names::PRE_TRIGGERS, &names::POST_TRIGGERS] {
        if let Some(triggers) = request.text(header)? {
            return Err(Problem::bad_request(format!(
                "the trigger {triggers} of {header} does not exist: triggers are not supported"
            )));
        }
    }
    Ok(())
}

fn check_if_match(request: &Request<'_>, etag: &str) -> Answer<()> {
    match request.text(&header::IF_MATCH)? {
        Some(wanted) if wanted != "*" && wanted != etag => {
            Err(Problem::new(StatusCode::PRECONDITION_FAILED, "it has another version: read it again"))
        }
        _ => Ok(()),
    }
}

/// A container that was created or replaced; says which of its settings have no effect.
fn written_container(status: StatusCode, info: &ContainerInfo, database: &str) -> Reply {
    let mut reply = shown_container(status, info, database);
    let without_effect = account::not_acted_on(&info.spec);
    if !without_effect.is_empty() {
        let settings = without_effect.join(", ");
        tracing::warn!(database, container = %info.spec.name, settings, "settings are kept but not acted on");
        reply.set_text(&names::NOT_ACTED_ON, &settings);
    }
    reply
}

fn shown_container(status: StatusCode, info: &ContainerInfo, database: &str) -> Reply {
    let mut reply = Reply::json(status, &account::container(info)).with_etag(&account::container_etag(info));
    reply.set_text(&names::ALT_CONTENT_PATH, &format!("dbs/{database}"));
    reply.set_text(&names::CONTENT_PATH, &info.rid.to_string());
    reply
}

async fn ranges(request: &Request<'_>, open: &Open) -> Answer<Reply> {
    if feed::mode(request)? == Some(Mode::AllVersions) {
        return Err(Problem::bad_request("pkranges have no Full-Fidelity Feed"));
    }
    let live = open.fresh_ranges().await?;
    let etag = account::ranges_etag(open, &live);
    let known = request.text(&header::IF_NONE_MATCH)?;
    let mut reply = if known == Some(&etag) {
        Reply::new(StatusCode::NOT_MODIFIED, "")
    } else {
        Reply::json(StatusCode::OK, &account::ranges(open, &live, open.newest().await?))
    };
    reply.set(&names::ITEM_COUNT, HeaderValue::from(if known == Some(&etag) { 0 } else { live.len() }));
    for (name, value) in [(&names::CONTENT_PATH, &open.rid_header), (&names::ALT_CONTENT_PATH, &open.name_header)] {
        if let Some(value) = value {
            reply.set(name, value.clone());
        }
    }
    Ok(reply.with_etag(&etag))
}

fn script_member(kind: &str) -> &'static str {
    match kind {
        "sprocs" => "StoredProcedures",
        "triggers" => "Triggers",
        "udfs" => "UserDefinedFunctions",
        _ => "Conflicts",
    }
}

/// What the word in a path stands for.
fn script_words(kind: &str) -> &'static str {
    match kind {
        "sprocs" => "stored procedures",
        "triggers" => "triggers",
        "udfs" => "user-defined functions",
        _ => "conflicts",
    }
}

fn empty_query(owner: &str, member: &str) -> Answer<Reply> {
    Ok(Reply::json(StatusCode::OK, &json!({ "_rid": owner, member: [], "_count": 0 })))
}

fn empty_feed(request: &Request<'_>, owner: &str, member: &str) -> Answer<Reply> {
    only(request, &Method::GET)?;
    Ok(Reply::json(StatusCode::OK, &json!({ "_rid": owner, member: [], "_count": 0 })))
}
