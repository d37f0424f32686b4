//! `changefeed top`: a processor in the terminal, as it changes.

mod screen;
mod view;

use std::{
    error::Error as StdError,
    io::{IsTerminal as _, stdout},
    sync::mpsc::{Receiver, Sender, channel},
    time::Duration,
};

use changefeed::{Estimator, Explain};
use ratatui::{
    Terminal,
    backend::TestBackend,
    buffer::Buffer,
    crossterm::{
        event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
        terminal,
    },
};

use self::view::{Look, View};
use crate::{
    args::{ProcessorArgs, TopArgs},
    clock,
    exit::{EndRequests, Error, Exit, Result, block_on, print, with_causes},
    inspect::on,
    processor_stores::ProcessorStores,
    progress,
    store_health::StoreProblems,
};

/// How wide a picture is that is not shown on a terminal.
const WIDTH: u16 = 80;

/// How long to wait for a key before new measurements are looked for.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// Shows the processor until a key ends it, or once.
pub(crate) fn top(args: &TopArgs) -> Result<Exit> {
    if args.once {
        return once(args);
    }
    if !stdout().is_terminal() {
        return Err("top needs a terminal: pass --once for one picture, or use `changefeed lag`".into());
    }
    progress::hide();
    let (sender, looks) = channel();
    let args_of_task = args.clone();
    // Ends with the process: it reads, and writes nothing.
    std::thread::Builder::new().name("top".to_owned()).spawn(move || measure(&args_of_task, &sender))?;
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let requests = tokio.block_on(async { EndRequests::listen() })?;
    let mut terminal = ratatui::try_init()?;
    let ended = show(&mut terminal, &args.processor.name, &looks, &requests);
    // A terminal that is gone needs no restoring.
    drop(ratatui::try_restore());
    progress::reveal();
    ended
}

fn once(args: &TopArgs) -> Result<Exit> {
    // Two measurements: one has no rates.
    let (first, second) = on(&args.processor, async |on| {
        let first = look(&args.processor, on).await?;
        clock::sleep(args.interval).await;
        Ok((first, look(&args.processor, on).await?))
    })?;
    let exit = second.exit();
    let mut view = View::new(&args.processor.name);
    view.take(Ok(first));
    view.take(Ok(second));
    if args.json {
        print(&format!("{}\n", serde_json::to_string(&view.look)?))?;
        return Ok(exit);
    }
    let width = if stdout().is_terminal() { terminal::size().map_or(WIDTH, |(width, _)| width) } else { WIDTH };
    let height = screen::height(&view, width);
    let mut terminal = Terminal::new(TestBackend::new(width, height))?;
    terminal.draw(|frame| screen::draw(frame, &view))?;
    print(&text(terminal.backend().buffer()))?;
    Ok(exit)
}

/// A measurement, or why there is none.
type Measured = std::result::Result<Look, Failed>;

/// Why there is no measurement.
#[derive(Debug)]
enum Failed {
    /// It is tried again.
    Once(String),
    /// There is nothing to look at: the store or the processor cannot be found.
    ForGood(Error),
}

/// Measures again and again; only what fails at the first time ends it.
fn measure(args: &TopArgs, sender: &Sender<Measured>) {
    let run = async {
        let (mut stores, mut is_first) = (None, true);
        loop {
            let measured = measure_once(args, &mut stores).await;
            let measured =
                measured.map_err(|error| if is_first { Failed::ForGood(error) } else { Failed::once(&*error) });
            is_first = false;
            if sender.send(measured).is_err() {
                return Ok(());
            }
            clock::sleep(args.interval).await;
        }
    };
    if let Err(error) = block_on::<()>(run) {
        // Nobody receives it if the picture has ended.
        drop(sender.send(Err(Failed::ForGood(error))));
    }
}

/// Looks once. A folder that nobody else has open is closed in between, so that hosts can be started; a server that
/// does not answer may be another one when it does.
async fn measure_once(args: &TopArgs, kept: &mut Option<ProcessorStores>) -> Result<Look> {
    let stores = match kept.take() {
        Some(stores) => stores,
        None => ProcessorStores::open(&args.processor).await?,
    };
    let looked = look(&args.processor, &stores).await?;
    if stores.store.engine().is_some() {
        stores.close().await?;
    } else {
        *kept = Some(stores);
    }
    Ok(looked)
}

impl Failed {
    fn once(error: &(dyn StdError + Send + Sync)) -> Self {
        Self::Once(with_causes(error))
    }
}

async fn look(args: &ProcessorArgs, on: &ProcessorStores) -> Result<Look> {
    let lag = Estimator::new(&on.name, &on.monitored, &on.leases).lag().await?;
    let explained = Explain::new(&on.name, &on.monitored, &on.leases).leases().await?;
    let problems = StoreProblems::of(args, on).await.sentences;
    Ok(Look::new(clock::now(), lag, explained, problems))
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    name: &str,
    looks: &Receiver<Measured>,
    requests: &EndRequests,
) -> Result<Exit> {
    let mut view = View::live(name);
    loop {
        if requests.any() {
            return Ok(Exit::Interrupted);
        }
        for measured in looks.try_iter() {
            match measured {
                Ok(look) => view.take(Ok(look)),
                Err(Failed::Once(error)) => view.take(Err(error)),
                Err(Failed::ForGood(error)) => return Err(error),
            }
        }
        terminal.draw(|frame| screen::draw(frame, &view))?;
        if event::poll(KEY_WAIT)?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
            && press(&mut view, key)
        {
            return Ok(Exit::Good);
        }
    }
}

/// Does what a key means; whether it ends the picture.
fn press(view: &mut View, key: KeyEvent) -> bool {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match (key.code, view.is_typing()) {
        (KeyCode::Char('c' | 'd'), _) if is_control => return true,
        (KeyCode::Esc, _) => view.clear_filter(),
        (KeyCode::Enter, true) => view.end_typing(),
        (KeyCode::Backspace, true) => view.untype(),
        (KeyCode::Char(char), true) => view.type_char(char),
        (KeyCode::Char('q'), false) => return true,
        (KeyCode::Char('s'), false) => view.sort_by_next(),
        (KeyCode::Char('r'), false) => view.reverse(),
        (KeyCode::Char('p'), false) => view.hold(),
        (KeyCode::Char('/'), false) => view.begin_typing(),
        (KeyCode::Down | KeyCode::Char('j'), false) => view.scroll(1),
        (KeyCode::Up | KeyCode::Char('k'), false) => view.scroll(-1),
        _ => {}
    }
    false
}

/// The picture as lines without colours and without spaces at their ends.
fn text(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width.max(1));
    let lines = buffer.content.chunks(width).map(|row| {
        let line: String = row.iter().map(|cell| cell.symbol()).collect();
        format!("{}\n", line.trim_end())
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_do_what_the_help_says() {
        let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
        let mut view = View::new("mailer");
        assert!(press(&mut view, key(KeyCode::Char('q'))));
        assert!(press(&mut view, KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert!(!press(&mut view, key(KeyCode::Char('/'))));
        assert!(!press(&mut view, key(KeyCode::Char('q'))), "typed into the filter");
        assert_eq!(view.filter(), "q");
        press(&mut view, key(KeyCode::Backspace));
        press(&mut view, key(KeyCode::Char('x')));
        press(&mut view, key(KeyCode::Enter));
        assert!(press(&mut view, key(KeyCode::Char('q'))));
        press(&mut view, key(KeyCode::Esc));
        assert_eq!(view.filter(), "");
    }
}
