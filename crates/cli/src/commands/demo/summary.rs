//! The proof of the demo: what the store has, counted and compared with what must be.

use std::collections::HashMap;

use statehold::{Result, Statehold, Status};
use statehold_core::model::{Event, Task};
use statehold_core::query::{CategoryFrom, CategoryRead, ReadFrom, TaskList};

use super::parts::{BOOKING, BOOKINGS, DISPATCHED, INVOICE, LATE, REFUSED, WEBHOOKS};
use super::story::{field, number, say};
use crate::show::{BAD, BOLD, GOOD};

/// How much is read at a time.
const PAGE: u32 = 1000;

/// A number, and what it must be.
struct Line {
    what: &'static str,
    is: u64,
    must: Must,
}

#[derive(Clone, Copy)]
enum Must {
    Be(u64),
    BeAtLeast(u64),
}

impl Line {
    fn holds(&self) -> bool {
        match self.must {
            Must::Be(number) => self.is == number,
            Must::BeAtLeast(number) => self.is >= number,
        }
    }

    fn text(&self) -> String {
        let (style, mark) = if self.holds() { (GOOD, "ok  ") } else { (BAD, "FAIL") };
        let must = match self.must {
            Must::Be(number) => format!("must be {number}"),
            Must::BeAtLeast(number) => format!("must be at least {number}"),
        };
        format!("   {style}{mark}{style:#} {:<58} {:>5}   {must}", self.what, self.is)
    }
}

/// Counts, shows, and answers whether every number is as it must be.
pub(super) async fn check(hold: &Statehold, webhooks: u32) -> Result<bool> {
    let lines = count(hold, webhooks.into()).await?;
    for line in &lines {
        say(&line.text());
    }
    let broken = lines.iter().filter(|line| !line.holds()).count();
    if broken == 0 {
        say(&format!("\n{BOLD}Nothing was lost, and nothing happened twice.{BOLD:#}"));
    } else {
        say(&format!("\n{BAD}{broken} of these did not hold.{BAD:#}"));
    }
    Ok(broken == 0)
}

async fn count(hold: &Statehold, webhooks: u64) -> Result<Vec<Line>> {
    let tasks = tasks(hold).await?;
    let events = task_events(hold).await?;
    let received = stream(hold, WEBHOOKS).await?;
    let refused = stream(hold, REFUSED).await?;
    let duplicates = received.iter().filter(|event| field(event, "created") == Some(false.into()));
    let children = tasks.iter().filter(|task| task.kind == BOOKING).count() as u64;
    let all = webhooks + BOOKINGS.len() as u64;
    let completed = tasks.iter().filter(|task| task.status == Status::Completed).count() as u64;
    let fenced = refused.iter().filter(|event| field(event, "code") == Some("fenced".into()));
    let invoice = hold.documents().get(INVOICE, "1").await?.and_then(|document| document.body);
    let late = of(&events, LATE).count() as u64
        + u64::from(invoice.is_some_and(|body| body.as_str().contains(LATE)));
    let signalled = of(&events, "task.resumed").filter(|event| by_signal(event)).count() as u64;
    let dispatches = of(&events, DISPATCHED).count() as u64;
    let new: u64 = of(&events, DISPATCHED).filter_map(|event| number(event, "new")).sum();
    let line = |what, is, must| Line { what, is, must };
    Ok(vec![
        line("webhooks that arrived", received.len() as u64, Must::Be(2 * webhooks)),
        line("tasks that they made", tasks.len() as u64 - children, Must::Be(webhooks)),
        line(
            "duplicates that were answered with the task that was there",
            duplicates.count() as u64,
            Must::Be(webhooks),
        ),
        line("times that the trip dispatched its bookings", dispatches, Must::BeAtLeast(2)),
        line("bookings that this made", children.max(new), Must::Be(BOOKINGS.len() as u64)),
        line("tasks taken over after their lease was lost", takeovers(&events), Must::BeAtLeast(2)),
        line("late writes refused as fenced", fenced.count() as u64, Must::BeAtLeast(1)),
        line("late writes that are in the store", late, Must::Be(0)),
        line("tasks resumed by a signal", signalled, Must::Be(1)),
        line("tasks completed", completed, Must::Be(all)),
        line("tasks completed exactly once, by their events", completed_once(&tasks, &events), Must::Be(all)),
    ])
}

fn of<'e>(events: &'e [Event], kind: &'e str) -> impl Iterator<Item = &'e Event> {
    events.iter().filter(move |event| event.kind == kind)
}

fn by_signal(event: &Event) -> bool {
    field(event, "by").is_some_and(|by| by.to_string().contains("signal"))
}

/// How many tasks were started by another after a lost lease.
fn takeovers(events: &[Event]) -> u64 {
    let lost = of(events, "task.lease_lost");
    let taken = lost.filter(|lost| {
        let next =
            of(events, "task.started").find(|event| event.stream == lost.stream && event.seq > lost.seq);
        next.is_some_and(|next| field(next, "owner") != field(lost, "owner"))
    });
    taken.count() as u64
}

/// How many tasks have exactly one event of their completion.
fn completed_once(tasks: &[Task], events: &[Event]) -> u64 {
    let mut counts: HashMap<_, u32> = HashMap::new();
    for event in of(events, "task.completed") {
        *counts.entry(event.stream.task()).or_default() += 1;
    }
    tasks.iter().filter(|task| counts.get(&Some(task.id)) == Some(&1)).count() as u64
}

async fn tasks(hold: &Statehold) -> Result<Vec<Task>> {
    let mut tasks = Vec::new();
    let mut list = TaskList { limit: PAGE, ..TaskList::default() };
    loop {
        let page = hold.tasks().list(&list).await?;
        tasks.extend(page.items);
        list.cursor = page.next_cursor;
        if list.cursor.is_none() {
            return Ok(tasks);
        }
    }
}

async fn task_events(hold: &Statehold) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    let mut read = CategoryRead { category: "task".to_owned(), from: CategoryFrom::Oldest, limit: PAGE };
    loop {
        let page = hold.backend().category_read(hold.namespace(), &read).await?;
        if page.events.is_empty() {
            return Ok(events);
        }
        events.extend(page.events);
        read.from = CategoryFrom::After(page.cursor);
    }
}

async fn stream(hold: &Statehold, name: &str) -> Result<Vec<Event>> {
    let (name, mut events) = (name.parse()?, Vec::new());
    let mut from = ReadFrom::Oldest;
    loop {
        let page: Vec<Event> = hold.streams().read(&name, from, PAGE).await?.events;
        let Some(last) = page.last() else { return Ok(events) };
        from = ReadFrom::After(last.seq);
        events.extend(page);
    }
}
