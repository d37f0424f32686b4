//! The live picture: hosts with their ranges, how much is done, what happened last.

use std::{
    collections::VecDeque,
    io::{Stderr, stderr},
};

use ratatui::{
    Frame, Terminal, TerminalOptions, Viewport,
    backend::CrosstermBackend,
    layout::{Constraint, Layout},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Gauge, Paragraph},
};

use super::{ledger::Totals, terminal::grouped};

/// How many lines the picture has: it fits a terminal of 24.
const HEIGHT: u16 = 20;

/// Sentences that are kept to be shown.
const KEPT: usize = 20;

/// One host as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShownHost {
    pub(crate) name: String,
    pub(crate) process: u32,
    pub(crate) ranges: Vec<String>,
    pub(crate) handled: u64,
    pub(crate) is_dead: bool,
}

/// Everything that is shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    pub(crate) clock: String,
    pub(crate) chapter: String,
    pub(crate) hosts: Vec<ShownHost>,
    pub(crate) totals: Totals,
    pub(crate) said: VecDeque<String>,
}

impl Shown {
    /// Adds a sentence.
    pub(crate) fn say(&mut self, text: String) {
        self.said.push_back(text);
        while self.said.len() > KEPT {
            self.said.pop_front();
        }
    }
}

/// A part of the terminal that is drawn again and again. What was drawn last stays.
#[derive(Debug)]
pub(crate) struct Picture {
    terminal: Terminal<CrosstermBackend<Stderr>>,
}

impl Picture {
    /// The lines below the cursor; none if the terminal does not say where that is.
    pub(crate) fn below_cursor() -> Option<Self> {
        let viewport = TerminalOptions { viewport: Viewport::Inline(HEIGHT) };
        Terminal::with_options(CrosstermBackend::new(stderr()), viewport).ok().map(|terminal| Self { terminal })
    }

    /// Leaves what was drawn last where it is, and goes on below it.
    pub(crate) fn leave(mut self) {
        let last = self.terminal.get_frame().area().bottom().saturating_sub(1);
        drop(self.terminal.set_cursor_position((0, last)));
        super::terminal::line("");
    }

    pub(crate) fn draw(&mut self, shown: &Shown) {
        // A terminal that has gone must not end the demo: its result is the ledger.
        drop(self.terminal.draw(|frame| draw(frame, shown)));
    }
}

fn draw(frame: &mut Frame<'_>, shown: &Shown) {
    let area = frame.area();
    let hosts = u16::try_from(shown.hosts.len()).unwrap_or(u16::MAX).max(1);
    let [chapter, _, heading, lines, _, gauge, totals, _, said] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(hosts),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(0),
    ])
    .areas(area);
    let title = format!("{}  {}", shown.clock, shown.chapter);
    frame.render_widget(Paragraph::new(Span::styled(title, Style::new().add_modifier(Modifier::BOLD))), chapter);
    let dim = Style::new().add_modifier(Modifier::DIM);
    frame.render_widget(Paragraph::new(Span::styled("HOST   PROCESS  HANDLED  RANGES", dim)), heading);
    frame.render_widget(Paragraph::new(shown.hosts.iter().map(host_line).collect::<Vec<_>>()), lines);
    let Totals { written, delivered, duplicates, dead_letters, lost } = shown.totals;
    let ratio = if written == 0 { 0.0 } else { (written - lost.min(written)) as f64 / written as f64 };
    let label = format!("{} of {} done", grouped((written - lost.min(written)) as u64), grouped(written as u64));
    frame.render_widget(Gauge::default().ratio(ratio).label(label).gauge_style(Style::new().fg(Color::Green)), gauge);
    let sums = format!(
        "{} written, {} delivered, {} again, {} to dead letters, {} to go",
        grouped(written as u64),
        grouped(delivered as u64),
        grouped(duplicates),
        dead_letters,
        grouped(lost as u64)
    );
    frame.render_widget(Paragraph::new(sums), totals);
    let wrapped: Vec<Line<'_>> =
        shown.said.iter().flat_map(|text| wrap(text, usize::from(said.width))).map(Line::from).collect();
    let fits = wrapped.len().saturating_sub(usize::from(said.height));
    frame.render_widget(Paragraph::new(wrapped.into_iter().skip(fits).collect::<Vec<_>>()), said);
}

fn host_line(host: &ShownHost) -> Line<'static> {
    let ShownHost { name, process, ranges, handled, is_dead } = host;
    let ranges = if *is_dead { "killed".to_owned() } else { ranges.join(" ") };
    let style = if *is_dead { Style::new().fg(Color::Red) } else { Style::new().fg(Color::Cyan) };
    Line::from(vec![
        Span::styled(format!("{name:<5}"), style),
        Span::raw(format!("  {process:>7}  {:>7}  ", grouped(*handled))),
        Span::styled(ranges, style),
    ])
}

/// A sentence in lines of at most `width` characters; a word that is longer is cut.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let indented = text.trim_start();
    // The time is aligned to the right.
    let mut lines = vec![" ".repeat(text.len() - indented.len())];
    for word in indented.split(' ') {
        let word: String = word.chars().take(width).collect();
        let Some(line) = lines.last_mut() else { break };
        if line.trim().is_empty() {
            line.push_str(&word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(&word);
        } else {
            // What continues a sentence is indented, as after the time.
            lines.push(format!("{:9}{word}", ""));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use ratatui::backend::TestBackend;

    use super::*;

    fn shown() -> Shown {
        let host = |name: &str, ranges: &[&str]| ShownHost {
            name: name.to_owned(),
            process: 4711,
            ranges: ranges.iter().map(|range| (*range).to_owned()).collect(),
            handled: 1234,
            is_dead: ranges.is_empty(),
        };
        let totals = Totals { written: 2000, delivered: 1500, duplicates: 15, dead_letters: 0, lost: 500 };
        let mut shown = Shown {
            clock: "  7.5 s".to_owned(),
            chapter: "2. A host dies without warning".to_owned(),
            hosts: vec![host("ada", &[]), host("bob", &["0", "3"])],
            totals,
            said: VecDeque::new(),
        };
        shown.say(
            "  7.4 s  ada died without warning, with range 1 and 4: nobody reads there now, until leases expire"
                .to_owned(),
        );
        shown
    }

    fn lines(shown: &Shown, width: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, HEIGHT)).unwrap();
        terminal.draw(|frame| draw(frame, shown)).unwrap();
        let content = &terminal.backend().buffer().content;
        let line = |row: &[ratatui::buffer::Cell]| row.iter().map(|cell| cell.symbol()).collect::<String>();
        content.chunks(usize::from(width)).map(|row| line(row).trim_end().to_owned()).collect()
    }

    #[test]
    fn the_picture_fits_eighty_columns() {
        let lines = lines(&shown(), 80);
        assert_eq!(lines[0], "  7.5 s  2. A host dies without warning");
        assert_eq!(
            lines[2..5],
            ["HOST   PROCESS  HANDLED  RANGES", "ada       4711    1,234  killed", "bob       4711    1,234  0 3",]
        );
        assert!(lines[6].contains("1,500 of 2,000 done"), "{lines:?}");
        assert_eq!(lines[7], "2,000 written, 1,500 delivered, 15 again, 0 to dead letters, 500 to go");
        assert_eq!(lines[9], "  7.4 s  ada died without warning, with range 1 and 4: nobody reads there now,");
        assert_eq!(lines[10], "         until leases expire");
    }

    #[test]
    fn no_width_breaks_it() {
        for width in [1, 9, 40, 200] {
            assert_eq!(lines(&shown(), width).len(), usize::from(HEIGHT));
            assert_eq!(lines(&Shown::default(), width).len(), usize::from(HEIGHT));
        }
    }
}
