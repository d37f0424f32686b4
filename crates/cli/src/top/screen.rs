//! Drawing: a heading, one line for each lease, what needs attention, the keys.

use std::time::Duration;

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Cell, Paragraph, Row as TableRow, Table, Wrap},
};

use super::view::{Look, Row, View};
use crate::inspect::length;

/// From this width on there is room for a column of sentences.
const WIDE: u16 = 100;

/// From this width on there is room for all columns of numbers.
const MEDIUM: u16 = 60;

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
    frame.render_widget(Paragraph::new(heading_lines(view)), heading);
    draw_leases(frame, view, leases);
    frame.render_widget(Paragraph::new(attention_lines(view)).wrap(Wrap { trim: true }), below);
    frame.render_widget(
        Paragraph::new(key_line(view, area.width)).style(Style::new().add_modifier(Modifier::DIM)),
        keys,
    );
}

fn heading_lines(view: &View) -> Vec<Line<'static>> {
    let held = if view.held { ", held" } else { "" };
    let first = match &view.look {
        None => format!("{}: looking{held}", view.name),
        Some(look) => format!("{}: {}{}{held}", view.name, lag(look), trend(look.lag_per_second())),
    };
    let second = match (&view.error, &view.look) {
        (Some(error), _) => Line::from(Span::styled(error.clone(), Style::new().fg(Color::Red))),
        (None, Some(look)) => {
            let (leases, hosts) = (look.leases.len(), look.hosts());
            let plural = |count| if count == 1 { "" } else { "s" };
            let (of_leases, of_hosts) = (plural(leases), plural(hosts));
            Line::from(format!("{leases} lease{of_leases} on {hosts} host{of_hosts}, sorted by {}", view.sort.name()))
        }
        (None, None) => Line::default(),
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

fn trend(rate: Option<f64>) -> String {
    match rate {
        Some(rate) if rate.abs() >= 0.5 => format!(", {rate:+.0}/s"),
        _ => String::new(),
    }
}

fn draw_leases(frame: &mut Frame<'_>, view: &View, area: Rect) {
    let rows = view.rows();
    let widest = |length: &dyn Fn(&Row) -> usize, least: usize| {
        let widest = rows.iter().map(|row| length(row)).max().unwrap_or(0).max(least);
        u16::try_from(widest).unwrap_or(u16::MAX)
    };
    let lease = widest(&|row| row.lease.chars().count(), 5).min(area.width / 3);
    let owner = widest(&|row| row.owner.as_deref().map_or(1, |owner| owner.chars().count()), 5);
    let numbers = [Constraint::Length(9), Constraint::Length(8)];
    let (headings, widths): (Vec<&str>, Vec<Constraint>) = match area.width {
        WIDE.. => (
            vec!["LEASE", "STATE", "OWNER", "  CHANGES", "   LAG/S", "BEHIND", "STATUS"],
            [
                &[Constraint::Length(lease), Constraint::Length(8), Constraint::Length(owner.min(24))],
                &numbers[..],
                &[Constraint::Length(9), Constraint::Min(20)],
            ]
            .concat(),
        ),
        MEDIUM..WIDE => (
            vec!["LEASE", "STATE", "OWNER", "  CHANGES", "   LAG/S", "BEHIND"],
            [
                &[Constraint::Length(lease), Constraint::Length(8), Constraint::Length(owner.min(24))],
                &numbers[..],
                &[Constraint::Min(9)],
            ]
            .concat(),
        ),
        _ => (
            vec!["LEASE", "STATE", "OWNER", "  CHANGES"],
            vec![Constraint::Length(lease), Constraint::Length(6), Constraint::Min(5), Constraint::Length(9)],
        ),
    };
    let columns = headings.len();
    let lines = rows.iter().skip(view.scrolled).map(|row| {
        let style = if row.needs_attention { Style::new().fg(Color::Yellow) } else { Style::new() };
        TableRow::new(cells(row).into_iter().take(columns).map(Cell::from)).style(style)
    });
    let heading = TableRow::new(headings).style(Style::new().add_modifier(Modifier::REVERSED));
    frame.render_widget(Table::new(lines, widths).header(heading).column_spacing(2), area);
}

fn cells(row: &Row) -> Vec<String> {
    let about = if row.estimated { "~" } else { "" };
    let rate = row.lag_per_second.map_or_else(|| "-".to_owned(), |rate| format!("{rate:+.0}"));
    let behind = match row.changes {
        0 => "-".to_owned(),
        _ => length(Duration::from_secs(row.behind_seconds)),
    };
    vec![
        row.lease.clone(),
        row.state.to_owned(),
        row.owner.clone().unwrap_or_else(|| "-".to_owned()),
        format!("{:>9}", format!("{about}{}", row.changes)),
        format!("{rate:>8}"),
        behind,
        row.status.clone(),
    ]
}

/// What `changefeed explain` says of leases that need attention; equal sentences once.
fn attention_lines(view: &View) -> Vec<Line<'static>> {
    let Some(look) = &view.look else { return Vec::new() };
    let mut said: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in look.leases.iter().filter(|row| row.needs_attention) {
        match said.iter_mut().find(|(status, _)| *status == row.status) {
            Some((_, leases)) => leases.push(&row.lease),
            None => said.push((&row.status, vec![&row.lease])),
        }
    }
    let broken = look.broken.iter().map(|document| format!("document {document} cannot be read"));
    let sentence = |(status, leases): &(&str, Vec<&str>)| match leases.as_slice() {
        [lease] => format!("lease {lease}: {status}"),
        [first, .., last] => format!("leases {first} … {last} ({}): {status}", leases.len()),
        [] => String::new(),
    };
    let all = said.iter().map(sentence).chain(broken).take(MOST_SENTENCES);
    let yellow = Style::new().fg(Color::Yellow);
    let lines: Vec<Line<'static>> = all.map(|text| Line::from(Span::styled(text, yellow))).collect();
    if lines.is_empty() { lines } else { [vec![Line::default()], lines].concat() }
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
        (true, filter) if width < MEDIUM => format!("filter: {filter}_  (Enter, Esc)"),
        (true, filter) => format!("filter: {filter}_  (Enter keeps it, Esc ends it)"),
        (false, "") if width < MEDIUM => "q end s sort r turn p hold / filter".to_owned(),
        (false, "") => "q end  s sort  r reverse  p hold  / filter".to_owned(),
        (false, filter) if width < MEDIUM => format!("q end  Esc: all, not {filter:?} only"),
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
            lag_per_second: None,
            status: if owner.is_some() { "works" } else { "nobody owns it: start a host" }.to_owned(),
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
        view.take(Ok(Look { at: Timestamp::from_secs(seconds), total, leases: rows, broken: Vec::new() }));
    }

    fn picture(view: &View, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, view)).unwrap();
        super::super::text(terminal.backend().buffer()).lines().map(str::to_owned).collect()
    }

    #[test]
    fn eighty_columns_show_all_numbers_and_what_to_do() {
        let mut view = view(10, vec![row("0", Some("worker-1"), 120), row("1", None, 40)]);
        add(&mut view, 12, vec![row("0", Some("worker-1"), 20), row("1", None, 60)]);
        assert_eq!(
            picture(&view, 80, 9),
            [
                "mailer: 80 changes behind, -40/s",
                "2 leases on 1 host, sorted by lease",
                "LEASE  STATE     OWNER       CHANGES     LAG/S  BEHIND",
                "0      owned     worker-1         20       -50  40s",
                "1      free      -                60       +10  2m",
                "",
                "",
                "lease 1: nobody owns it: start a host",
                "q end  s sort  r reverse  p hold  / filter",
            ]
        );
    }

    #[test]
    fn forty_columns_keep_what_matters() {
        let view = view(10, vec![row("0", Some("a-worker-with-a-long-name"), 120), row("1", None, 4)]);
        let lines = picture(&view, 40, 9);
        assert_eq!(lines[2], "LEASE  STATE   OWNER             CHANGES");
        assert_eq!(lines[3], "0      owned   a-worker-with-        120");
        assert!(lines.iter().all(|line| line.chars().count() <= 40), "{lines:?}");
    }

    #[test]
    fn lines_are_sorted_filtered_and_held() {
        let rows = || vec![row("0", Some("b"), 1), row("1", Some("a"), 7), row("2", None, 3)];
        let mut view = view(1, rows());
        let order = |view: &View| view.rows().iter().map(|row| row.lease.clone()).collect::<Vec<_>>().concat();
        assert_eq!(order(&view), "012");
        view.sort_by_next();
        assert_eq!(order(&view), "120");
        view.reverse();
        assert_eq!(order(&view), "021");
        "nobody".chars().for_each(|char| view.type_char(char));
        assert_eq!(order(&view), "2");
        view.clear_filter();
        view.hold();
        add(&mut view, 2, Vec::new());
        assert_eq!(order(&view), "021", "a picture that is held stays");
    }

    #[test]
    fn an_error_is_shown_beside_the_last_picture_and_no_size_breaks_it() {
        let mut view = view(1, (0..50).map(|number| row(&number.to_string(), None, 1)).collect());
        view.take(Err("nothing listens at http://127.0.0.1:1".to_owned()));
        assert_eq!(picture(&view, 80, 20)[1], "nothing listens at http://127.0.0.1:1");
        for (width, height) in [(1, 1), (10, 3), (40, 5), (300, 100)] {
            picture(&view, width, height);
        }
        picture(&View::new("mailer"), 80, 24);
    }
}
