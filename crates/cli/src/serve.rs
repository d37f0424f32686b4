//! `changefeed serve`: a store on a socket.

use std::{
    net::{SocketAddr, TcpListener},
    path::Path,
    time::Duration,
};

use changefeed_embedded::Engine;
use changefeed_server::{Server, Tls, self_signed};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::json;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};
use tracing_subscriber::filter::LevelFilter;

use crate::{
    args::ServeArgs,
    demo,
    exit::{Exit, Result, print, say},
    keys, metrics,
    progress::Indicator,
    store::{MEMORY, admin_endpoint, is_store, must_be_a_path},
};

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
    let (tls, certificate) = tls(args.tls.as_deref())?;
    let keys = args.key_file.as_deref().map(keys::in_file).transpose()?;
    let measured = metrics::install()?;
    let render = measured.clone();
    let engine = Engine::builder().account_host(&args.account_host);
    // Before a store is made that nobody will serve.
    must_be_free(args.listen)?;
    let is_new = args.store != Path::new(MEMORY) && !is_store(&args.store);
    let opening = Indicator::waiting(format!("opening {}", args.store.display()));
    let engine = if args.store == Path::new(MEMORY) { engine.in_memory()? } else { engine.open(&args.store)? };
    drop(opening);
    // Programs that start a server of their own know it.
    if is_new && !args.until_stdin_closes {
        say(&format!("new store in {}", args.store.display()));
    }
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
    if let Some(tls) = tls {
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
    if let (Some(certificate), Some(ready)) = (certificate, ready.as_object_mut()) {
        ready.insert("certificate".to_owned(), certificate.into());
    }
    print(&format!("{ready}\n"))?;
    let mut stdin_closed = args.until_stdin_closes.then(demo::host::stdin_closed).transpose()?;
    let mut upkeep = std::pin::pin!(metrics::upkeep(measured));
    loop {
        tokio::select! {
            () = upkeep.as_mut() => {}
            () = closed(&mut stdin_closed) => break,
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            _ = hang_up.recv() => reload(args, &server),
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

/// Reads keys and certificate again. What is not good is said, and the old ones stay.
fn reload(args: &ServeArgs, server: &Server) {
    if let Err(error) = server.reload_certificate() {
        tracing::error!(%error, "the certificate stays as it is");
    }
    let Some(file) = &args.key_file else { return };
    let changed = keys::in_file(file).and_then(|keys| Ok(server.set_keys(keys)?));
    if let Err(error) = changed {
        tracing::error!(%error, "the keys stay as they are");
    }
}

/// What `--tls` says, and the certificate that clients have to trust.
fn tls(argument: Option<&str>) -> Result<(Option<Tls>, Option<String>)> {
    match argument {
        None => Ok((None, None)),
        Some("self-signed") => {
            let made = self_signed()?;
            let certificate = made.certificate.clone();
            Ok((Some(Tls::Given(made)), Some(certificate)))
        }
        Some(files) => match files.split_once(',') {
            Some((certificate, key)) => Ok((Some(Tls::Files(certificate.into(), key.into())), None)),
            None => Err(format!("--tls {files}: pass self-signed, or CERT,KEY with a comma between two files").into()),
        },
    }
}
