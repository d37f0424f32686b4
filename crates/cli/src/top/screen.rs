//! Drawing: a heading, one line for each lease, what needs attention, the keys.

use std::time::Duration;

use changefeed::LeaseState;
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Cell, Paragraph, Row as TableRow, Table, Wrap},
};

use super::view::{Look, Row, View};
use crate::inspect::{length, state};

/// From this width on there is room for a column of sentences.
const WIDE: u16 = 100;

/// From this width on there is room for the growth of the lag.
const MEDIUM: u16 = 78;

/// From this width on there is room for more numbers than the lag, and for whole sentences.
const NARROW: u16 = 60;

/// The most sentences about leases that need attention.
const MOST_SENTENCES: usize = 5;

/// How many lines the whole picture has, without the keys.
pub(super) fn height(view: &View, width: u16) -> u16 {
    let rows = u16::try_from(view.rows().len()).unwrap_or(u16::MAX - 100);
    2 + 1 + rows + attention_height(view, width)
}

/// Draws the picture.
pub(super) fn draw(frame: &mut Frame<'_>, view: &View) {
    let area = frame.area();
    let attention = attention_height(view, area.width).min(area.height / 2);
    let [heading, leases, below, keys] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Min(1),
        Constraint::Length(attention),
        Constraint::Length(u16::from(view.live)),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(heading_lines(view, area.width)), heading);
    draw_leases(frame, view, leases);
    frame.render_widget(Paragraph::new(attention_lines(view)).wrap(Wrap { trim: true }), below);
    frame.render_widget(
        Paragraph::new(key_line(view, area.width)).style(Style::new().add_modifier(Modifier::DIM)),
        keys,
    );
}

fn heading_lines(view: &View, width: u16) -> Vec<Line<'static>> {
    let held = if view.held { ", held" } else { "" };
    let rates = view.look.as_ref().map(rates).unwrap_or_default();
    let narrow = width < NARROW;
    let first = match &view.look {
        None => format!("{}: looking{held}", view.name),
        Some(look) if narrow || rates.is_empty() => format!("{}: {}{held}", view.name, lag(look)),
        Some(look) => format!("{}: {}, {rates}{held}", view.name, lag(look)),
    };
    let second = match &view.look {
        Some(_) if narrow && !rates.is_empty() => Line::from(rates),
        Some(look) => {
            let (leases, hosts) = (look.leases.len(), look.hosts());
            let plural = |count| if count == 1 { "" } else { "s" };
            let (of_leases, of_hosts) = (plural(leases), plural(hosts));
            Line::from(format!("{leases} lease{of_leases} on {hosts} host{of_hosts}, sorted by {}", view.sort.name()))
        }
        None => Line::default(),
    };
    vec![Line::from(Span::styled(first, Style::new().add_modifier(Modifier::BOLD))), second]
}

fn lag(look: &Look) -> String {
    match look.total {
        0 => "caught up".to_owned(),
        1 => "1 change behind".to_owned(),
        total => format!("{total} changes behind"),
    }
}

/// What happens in a second, as far as it is known.
fn rates(look: &Look) -> String {
    let handled = look.handled_per_second().map(|rate| format!("{} handled/s", rate_of(rate)));
    let growth = look.lag_per_second().filter(|rate| rate.abs() >= 0.5).map(|rate| format!("lag {rate:+.0}/s"));
    handled.into_iter().chain(growth).collect::<Vec<_>>().join(", ")
}

/// Slow is not the same as not at all.
fn rate_of(rate: f64) -> String {
    if rate > 0.0 && rate < 9.5 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

fn draw_leases(frame: &mut Frame<'_>, view: &View, area: Rect) {
    let rows = view.rows();
    let widest = |length: &dyn Fn(&Row) -> usize, least: usize| {
        let widest = rows.iter().map(|row| length(row)).max().unwrap_or(0).max(least);
        u16::try_from(widest).unwrap_or(u16::MAX)
    };
    let lease = Constraint::Length(widest(&|row| row.lease.chars().count(), 5).min(area.width / 3));
    let longest = match area.width {
        WIDE.. => 24,
        MEDIUM..WIDE => 16,
        _ => 10,
    };
    let owner = widest(&|row| row.owner.as_deref().map_or(1, |owner| owner.chars().count()), 5).min(longest);
    let (state, owner) = (Constraint::Length(8), Constraint::Length(owner));
    let columns: Vec<(Column, Constraint)> = match area.width {
        NARROW.. => vec![
            (Column::Lease, lease),
            (Column::State, state),
            (Column::Owner, owner),
            (Column::Changes, Constraint::Length(9)),
            (Column::Handled, Constraint::Length(9)),
            (Column::Growth, Constraint::Length(8)),
            (Column::Behind, Constraint::Length(9)),
            (Column::Status, Constraint::Min(20)),
        ],
        _ => vec![
            (Column::Lease, lease),
            (Column::State, Constraint::Length(6)),
            (Column::Owner, Constraint::Min(5)),
            (Column::Changes, Constraint::Length(9)),
        ],
    };
    let has_room = |column: &Column| match column {
        Column::Status => area.width >= WIDE,
        Column::Growth => area.width >= MEDIUM,
        _ => true,
    };
    let (columns, widths): (Vec<Column>, Vec<Constraint>) =
        columns.into_iter().filter(|(column, _)| has_room(column)).unzip();
    let lines = rows.iter().skip(view.scrolled).map(|row| {
        let style = if row.needs_attention { Style::new().fg(Color::Yellow) } else { Style::new() };
        TableRow::new(columns.iter().map(|column| Cell::from(column.cell(row)))).style(style)
    });
    let heading = TableRow::new(columns.iter().map(|column| column.heading()));
    let heading = heading.style(Style::new().add_modifier(Modifier::REVERSED));
    frame.render_widget(Table::new(lines, widths).header(heading).column_spacing(2), area);
}

/// What a column shows.
#[derive(Clone, Copy, Debug)]
enum Column {
    Lease,
    State,
    Owner,
    Changes,
    Handled,
    Growth,
    Behind,
    Status,
}

impl Column {
    fn heading(self) -> &'static str {
        match self {
            Self::Lease => "LEASE",
            Self::State => "STATE",
            Self::Owner => "OWNER",
            Self::Changes => "  CHANGES",
            Self::Handled => "HANDLED/S",
            Self::Growth => "   LAG/S",
            Self::Behind => "BEHIND",
            Self::Status => "STATUS",
        }
    }

    fn cell(self, row: &Row) -> String {
        let or_none = |shown: Option<String>| shown.unwrap_or_else(|| "-".to_owned());
        match self {
            Self::Lease => row.lease.clone(),
            Self::State => row.state.to_owned(),
            Self::Owner => or_none(row.owner.clone()),
            Self::Changes => {
                let about = if row.estimated { "~" } else { "" };
                format!("{:>9}", format!("{about}{}", row.changes))
            }
            Self::Handled => format!("{:>9}", or_none(row.handled_per_second.map(rate_of))),
            Self::Growth => format!("{:>8}", or_none(row.lag_per_second.map(|rate| format!("{rate:+.0}")))),
            Self::Behind if row.changes == 0 => "-".to_owned(),
            Self::Behind => length(Duration::from_secs(row.behind_seconds)),
            Self::Status => row.status.clone(),
        }
    }
}

/// Why the last measurement failed, and what `changefeed explain` says of stores and leases that need attention.
fn attention_lines(view: &View) -> Vec<Line<'static>> {
    let error = view.error.iter().map(|error| Line::from(Span::styled(error.clone(), Style::new().fg(Color::Red))));
    let lines: Vec<Line<'static>> = error.chain(view.look.iter().flat_map(sentences)).collect();
    if lines.is_empty() { lines } else { [vec![Line::default()], lines].concat() }
}

/// Equal sentences once.
fn sentences(look: &Look) -> Vec<Line<'static>> {
    let mut said: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in look.leases.iter().filter(|row| row.needs_attention) {
        match said.iter_mut().find(|(status, _)| *status == row.status) {
            Some((_, leases)) => leases.push(&row.lease),
            None => said.push((&row.status, vec![&row.lease])),
        }
    }
    // Those with the id of a lease are rows, with a sentence of their own.
    let has_rows = look.leases.iter().any(|row| row.state == state(LeaseState::Broken));
    let broken = look.broken.iter().filter(|_| !has_rows).map(|document| format!("document {document} cannot be read"));
    let sentence = |(status, leases): &(&str, Vec<&str>)| match leases.as_slice() {
        [lease] => format!("lease {lease}: {status}"),
        [first, .., last] => format!("leases {first} … {last} ({}): {status}", leases.len()),
        [] => String::new(),
    };
    let problems = look.store_problems.iter().cloned();
    let all = problems.chain(said.iter().map(sentence)).chain(broken).take(MOST_SENTENCES);
    let yellow = Style::new().fg(Color::Yellow);
    all.map(|text| Line::from(Span::styled(text, yellow))).collect()
}

fn attention_height(view: &View, width: u16) -> u16 {
    let width = usize::from(width.max(1));
    let lines = attention_lines(view);
    // Words are not cut: a line may be left with a gap as long as a word.
    let height = |line: &Line<'static>| line.width().div_ceil(width.saturating_sub(8).max(1)).max(1);
    u16::try_from(lines.iter().map(height).sum::<usize>()).unwrap_or(u16::MAX)
}

fn key_line(view: &View, width: u16) -> String {
    match (view.is_typing(), view.filter()) {
        (true, filter) if width < NARROW => format!("filter: {filter}_  (Enter, Esc)"),
        (true, filter) => format!("filter: {filter}_  (Enter keeps it, Esc ends it)"),
        (false, "") if width < NARROW => "q end s sort r turn p hold / filter".to_owned(),
        (false, "") => "q end  s sort  r reverse  p hold  / filter".to_owned(),
        (false, filter) if width < NARROW => format!("q end  Esc: all, not {filter:?} only"),
        (false, filter) => format!("q end  s sort  r reverse  p hold  Esc: all, not {filter:?} only"),
    }
}

#[cfg(test)]
mod tests {
    use changefeed_core::Timestamp;
    use ratatui::{Terminal, backend::TestBackend};

    use super::*;

    fn row(lease: &str, owner: Option<&str>, changes: u64) -> Row {
        Row {
            lease: lease.to_owned(),
            state: if owner.is_some() { "owned" } else { "free" },
            owner: owner.map(str::to_owned),
            changes,
            estimated: false,
            behind_seconds: changes * 2,
            // As if 1,000 writes had been made.
            checkpoint: Some(1000 - changes),
            handled_per_second: None,
            lag_per_second: None,
            status: if owner.is_some() { "works" } else { "no host owns it: start a host" }.to_owned(),
            needs_attention: owner.is_none(),
        }
    }

    fn view(seconds: u64, rows: Vec<Row>) -> View {
        let mut view = View::live("mailer");
        add(&mut view, seconds, rows);
        view
    }

    fn add(view: &mut View, seconds: u64, rows: Vec<Row>) {
        let total = rows.iter().map(|row| row.changes).sum();
        let (broken, store_problems) = (Vec::new(), Vec::new());
        view.take(Ok(Look { at: Timestamp::from_secs(seconds), total, leases: rows, broken, store_problems }));
    }

    fn picture(view: &View, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, view)).unwrap();
        super::super::text(terminal.backend().buffer()).lines().map(str::to_owned).collect()
    }

    #[test]
    fn eighty_columns_show_all_numbers_and_what_to_do() {
        let mut view = view(10, vec![row("0", Some("worker-1"), 120), row("1", None, 40)]);
        let mut sought_back = row("1", None, 60);
        sought_back.checkpoint = Some(900);
        add(&mut view, 12, vec![row("0", Some("worker-1"), 20), sought_back]);
        assert_eq!(
            picture(&view, 80, 9),
            [
                "mailer: 80 changes behind, 50 handled/s, lag -40/s",
                "2 leases on 1 host, sorted by lease",
                "LEASE  STATE     OWNER       CHANGES  HANDLED/S     LAG/S  BEHIND",
                "0      owned     worker-1         20         50       -50  40s",
                "1      free      -                60          -       +10  2m",
                "",
                "",
                "lease 1: no host owns it: start a host",
                "q end  s sort  r reverse  p hold  / filter",
            ]
        );
    }

    #[test]
    fn rates_are_means_over_ten_seconds() {
        let mut view = view(0, vec![row("0", Some("a"), 1000)]);
        // A checkpoint every five seconds, of 30 changes.
        for second in 1..=60 {
            add(&mut view, second, vec![row("0", Some("a"), 1000 - second / 5 * 30)]);
            if second >= 10 {
                assert_eq!(picture(&view, 80, 5)[3].split_whitespace().nth(4), Some("6.0"), "second {second}");
            }
        }
        add(&mut view, 75, vec![row("0", Some("a"), 640)]);
        assert_eq!(picture(&view, 80, 5)[3].split_whitespace().nth(4), Some("0"), "since the last look");
    }

    #[test]
    fn forty_columns_keep_what_matters() {
        let mut view = view(10, vec![row("0", Some("a-worker-with-a-long-name"), 120), row("1", None, 4)]);
        add(&mut view, 11, vec![row("0", Some("a-worker-with-a-long-name"), 110), row("1", None, 4)]);
        let lines = picture(&view, 40, 9);
        assert_eq!(
            lines[..4],
            [
                "mailer: 114 changes behind",
                "10 handled/s, lag -10/s",
                "LEASE  STATE   OWNER             CHANGES",
                "0      owned   a-worker-with-        110",
            ]
        );
        assert!(lines.iter().all(|line| line.chars().count() <= 40), "{lines:?}");
        for (width, expected) in [
            (60, "LEASE  STATE     OWNER         CHANGES  HANDLED/S  BEHIND"),
            (78, "LEASE  STATE     OWNER               CHANGES  HANDLED/S     LAG/S  BEHIND"),
            (120, "LEASE  STATE     OWNER                       CHANGES  HANDLED/S     LAG/S  BEHIND     STATUS"),
        ] {
            let expected: String = expected.chars().take(width.into()).collect();
            assert_eq!(picture(&view, width, 9)[2], expected, "{width} columns");
        }
    }

    #[test]
    fn lines_are_sorted_filtered_and_held() {
        let rows = || vec![row("0", Some("b"), 1), row("1", Some("a"), 7), row("2", None, 3)];
        let mut view = view(1, rows());
        let order = |view: &View| view.rows().iter().map(|row| row.lease.clone()).collect::<Vec<_>>().concat();
        assert_eq!(order(&view), "012");
        view.sort_by_next();
        assert_eq!(order(&view), "120");
        add(&mut view, 2, vec![row("0", Some("b"), 1), row("1", Some("a"), 7), row("2", None, 2)]);
        view.sort_by_next();
        assert_eq!(order(&view), "201", "the fastest first");
        for _ in 0..5 {
            view.sort_by_next();
        }
        assert_eq!(order(&view), "120");
        view.reverse();
        assert_eq!(order(&view), "021");
        "no host".chars().for_each(|char| view.type_char(char));
        assert_eq!(order(&view), "2");
        view.clear_filter();
        view.hold();
        add(&mut view, 3, Vec::new());
        assert_eq!(order(&view), "021", "a picture that is held stays");
    }

    #[test]
    fn an_error_is_shown_beside_the_last_picture_and_no_size_breaks_it() {
        let mut view = view(1, (0..50).map(|number| row(&number.to_string(), None, 1)).collect());
        view.take(Err("nothing listens at http://127.0.0.1:1: start the server with `changefeed serve`".to_owned()));
        let lines = picture(&view, 40, 20);
        let begin = lines.iter().position(|line| line.starts_with("nothing listens")).unwrap();
        assert_eq!(lines[1], "50 leases on 0 hosts, sorted by lease");
        assert_eq!(
            lines[begin..begin + 2],
            ["nothing listens at http://127.0.0.1:1:", "start the server with `changefeed serve`"]
        );
        for (width, height) in [(1, 1), (10, 3), (40, 5), (300, 100)] {
            picture(&view, width, height);
        }
        picture(&View::new("mailer"), 80, 24);
    }
}
