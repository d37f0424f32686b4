//! `changefeed serve`: a store on a socket.

mod certificate;

use std::{
    net::{SocketAddr, TcpListener},
    path::Path,
    time::Duration,
};

use changefeed_core::ErrorKind;
use changefeed_embedded::Engine;
use changefeed_server::{Server, Tls, self_signed_for};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::json;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};
use tracing_subscriber::filter::LevelFilter;

use self::certificate::Kept;
use crate::{
    args::ServeArgs,
    clock, demo,
    exit::{Exit, Result, print, say},
    keys, metrics,
    progress::Indicator,
    store::{MEMORY, admin_endpoint, is_store, must_be_a_path, when_unlocked},
};

/// How often the certificate is looked at.
const RENEWAL: Duration = Duration::from_secs(12 * 3600);

/// Serves until a signal asks it to stop.
pub(crate) fn run(args: &ServeArgs) -> Result<Exit> {
    let level: LevelFilter = args.log.parse()?;
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .log_internal_errors(false)
        .init();
    must_be_a_path(&args.store, "serve needs one of its own, or memory")?;
    allow_many_files();
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    tokio.block_on(serve(args))
}

async fn serve(args: &ServeArgs) -> Result<Exit> {
    // Signals count from the first moment, also those that come while the store is opened.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let given_tls = given_tls(args)?;
    let keys = args.key_file.as_deref().map(keys::in_file).transpose()?;
    let measured = metrics::install()?;
    let render = measured.clone();
    // Before a store is made that nobody will serve.
    must_be_free(args.listen)?;
    let is_new = args.store != Path::new(MEMORY) && !is_store(&args.store);
    let opening = Indicator::waiting(format!("opening {}", args.store.display()));
    let engine = open(args)?;
    drop(opening);
    // Programs that start a server of their own know it.
    if is_new && !args.until_stdin_closes {
        say(&format!("new store in {}", args.store.display()));
    }
    let tls = prepare(args, given_tls)?;
    let mut builder = Server::builder(engine.catalog())
        .storage(changefeed::storage_of(&engine))
        .metrics(move || render.render())
        .listen(args.listen)
        .retention((args.retention > 0).then(|| Duration::from_secs(u64::from(args.retention) * 60)))
        .account_host(&args.account_host)
        .allow_faults(args.allow_faults)
        .previous_images(args.previous_images)
        .plain_beyond_loopback(args.allow_plain);
    if let Some(ranges) = args.ranges {
        builder = builder.ranges(ranges);
    }
    if let Some(tls) = tls.source {
        builder = builder.tls(tls);
    }
    if let Some(keys) = keys {
        builder = builder.keys(keys);
    }
    let mut server = builder.start().await?;
    let admin = admin_endpoint(&engine);
    let mut ready = json!({
        "event": "ready", "endpoint": server.endpoint(), "pid": std::process::id(),
        "store": args.store.display().to_string(),
    });
    let kept = tls.kept;
    if let (Some(certificate), Some(ready)) = (tls.certificate, ready.as_object_mut()) {
        ready.insert("certificate".to_owned(), certificate.into());
        if let Some(kept) = &kept {
            ready.insert("certificate_file".to_owned(), kept.file().display().to_string().into());
        }
    }
    print(&format!("{ready}\n"))?;
    let mut stdin_closed = args.until_stdin_closes.then(demo::host::stdin_closed).transpose()?;
    let mut upkeep = std::pin::pin!(metrics::upkeep(measured));
    let mut renewal = Box::pin(clock::sleep(RENEWAL));
    loop {
        tokio::select! {
            () = upkeep.as_mut() => {}
            () = renewal.as_mut() => {
                if renewed(kept.as_ref()) {
                    reload_certificate(&server);
                }
                renewal = Box::pin(clock::sleep(RENEWAL));
            }
            () = closed(&mut stdin_closed) => break,
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            _ = hang_up.recv() => {
                renewed(kept.as_ref());
                reload(args, &server);
            }
            () = server.failed() => return Err("the server can no longer accept connections".into()),
            error = engine.stopped() => {
                // Living on would refuse every write, and hide that from whoever restarts processes.
                server.stop().await;
                return Err(error.into());
            }
        }
    }
    if let Some(admin) = admin {
        admin.close().await;
    }
    server.stop().await;
    engine.close().await?;
    Ok(Exit::Good)
}

/// Refuses an address that is taken or is none of this machine.
fn must_be_free(address: SocketAddr) -> Result<()> {
    match TcpListener::bind(address) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("listen on {address}: {error}: choose another address with --listen").into()),
    }
}

/// Waits until stdin is closed; without end if that does not matter.
async fn closed(stdin: &mut Option<oneshot::Receiver<()>>) {
    match stdin {
        // Nothing is sent: the other end is dropped.
        Some(stdin) => drop(stdin.await),
        None => std::future::pending().await,
    }
}

/// Raises the limit of open files to what the system allows: each connection and each file of the log takes one.
fn allow_many_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "the limit of open files stays: fewer connections are accepted");
    }
}

/// Opens the store. Another process may be about to end.
fn open(args: &ServeArgs) -> Result<Engine> {
    let engine = || Engine::builder().account_host(&args.account_host);
    if args.store == Path::new(MEMORY) {
        return Ok(engine().in_memory()?);
    }
    when_unlocked(|| engine().open(&args.store)).map_err(|error| match error.kind() {
        ErrorKind::Locked => format!(
            "the store in {} is open in another process: stop the process that has it open, then start serve",
            args.store.display()
        )
        .into(),
        _ => error.into(),
    })
}

/// Renews the certificate in the folder of the store if it is time; whether it did.
fn renewed(kept: Option<&Kept>) -> bool {
    let renewed = kept.map_or(Ok(false), |kept| kept.renew(clock::now()));
    renewed.unwrap_or_else(|error| {
        tracing::error!(%error, "the certificate is not renewed");
        false
    })
}

fn reload_certificate(server: &Server) {
    if let Err(error) = server.reload_certificate() {
        tracing::error!(%error, "the certificate stays as it is");
    }
}

/// Reads keys and certificate again. What is not good is said, and the old ones stay.
fn reload(args: &ServeArgs, server: &Server) {
    reload_certificate(server);
    let Some(file) = &args.key_file else { return };
    let changed = keys::in_file(file).and_then(|keys| Ok(server.set_keys(keys)?));
    if let Err(error) = changed {
        tracing::error!(%error, "the keys stay as they are");
    }
}

/// What `--tls` says.
enum GivenTls {
    None,
    SelfSigned(Vec<String>),
    Files(Tls),
}

/// Where the certificate comes from.
#[derive(Default)]
struct PreparedTls {
    source: Option<Tls>,
    /// What clients have to trust, in PEM form.
    certificate: Option<String>,
    /// Set if it is kept with the store.
    kept: Option<Kept>,
}

fn given_tls(args: &ServeArgs) -> Result<GivenTls> {
    match args.tls.as_deref() {
        Some("self-signed") => Ok(GivenTls::SelfSigned(certificate::names(&args.account_host, &args.tls_name))),
        _ if !args.tls_name.is_empty() => {
            Err("--tls-name is for a self-signed certificate: pass --tls self-signed, or leave it out".into())
        }
        None => Ok(GivenTls::None),
        Some(files) => match files.split_once(',') {
            Some((certificate, key)) => Ok(GivenTls::Files(Tls::Files(certificate.into(), key.into()))),
            None => Err(format!("--tls {files}: pass self-signed, or CERT,KEY with a comma between two files").into()),
        },
    }
}

/// Makes the certificate that is asked for, or takes the one that is kept in the folder of the store, which is open.
fn prepare(args: &ServeArgs, given: GivenTls) -> Result<PreparedTls> {
    let names = match given {
        GivenTls::None => return Ok(PreparedTls::default()),
        GivenTls::Files(files) => return Ok(PreparedTls { source: Some(files), ..PreparedTls::default() }),
        GivenTls::SelfSigned(names) => names,
    };
    if args.store == Path::new(MEMORY) {
        let made = self_signed_for(&names, None)?;
        let certificate = Some(made.certificate.clone());
        return Ok(PreparedTls { source: Some(Tls::Given(made)), certificate, kept: None });
    }
    let held = names.join(", ");
    let kept = Kept::new(&args.store, names);
    let file = kept.file();
    if kept.renew(clock::now())? && !args.until_stdin_closes {
        say(&format!("new certificate for {held} in {}: clients need a copy (--ca-file)", file.display()));
    }
    let certificate = std::fs::read_to_string(&file).map_err(|error| format!("read {}: {error}", file.display()))?;
    Ok(PreparedTls { source: Some(kept.tls()), certificate: Some(certificate), kept: Some(kept) })
}
