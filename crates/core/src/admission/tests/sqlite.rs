//! Admission's storage over SQLite in memory, with calls that can be cut short and statements that can be spoilt.

use crate::admission::{Bind, Sql, migrate};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, StatementStatus, params_from_iter};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::cell::{Cell, RefCell};

#[derive(Debug)]
pub enum Fault {
    Sqlite(#[allow(dead_code, reason = "shown when a test fails")] rusqlite::Error),
    /// The process ended here.
    Cut,
}

/// How a call is cut short after some of its writes.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// The process died: what the call wrote is rolled back with it.
    RolledBack { writes: u32 },
    /// A statement failed and nothing was rolled back.
    Kept { writes: u32 },
}

pub struct Sqlite {
    connection: Connection,
    writes_left: Cell<Option<u32>>,
    /// (written, spoilt)
    spoilt: Vec<(&'static str, &'static str)>,
    spoilt_hits: Cell<u32>,
    steps: RefCell<Option<u64>>,
}

impl Sqlite {
    pub fn new() -> Self {
        Self::spoilt(Vec::new())
    }

    pub fn spoilt(spoilt: Vec<(&'static str, &'static str)>) -> Self {
        Self::with("", spoilt)
    }

    /// What another version left, brought to this one.
    pub fn over(dump: &str) -> Self {
        Self::with(dump, Vec::new())
    }

    fn with(dump: &str, spoilt: Vec<(&'static str, &'static str)>) -> Self {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(dump).unwrap();
        connection.execute_batch("PRAGMA synchronous = OFF").unwrap();
        let sql = Self {
            connection,
            writes_left: Cell::new(None),
            spoilt: Vec::new(),
            spoilt_hits: Cell::new(0),
            steps: RefCell::new(None),
        };
        migrate(&sql).unwrap();
        Self { spoilt, ..sql }
    }

    pub fn transaction<T>(&self, run: impl FnOnce() -> T) -> T {
        self.connection.execute_batch("BEGIN").unwrap();
        let result = run();
        self.connection.execute_batch("COMMIT").unwrap();
        result
    }

    /// Runs one call, cut short or not.
    pub fn call<T>(&self, cut: Option<Cut>, run: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
        let (writes, roll_back) = match cut {
            None => (None, false),
            Some(Cut::RolledBack { writes }) => (Some(writes), true),
            Some(Cut::Kept { writes }) => (Some(writes), false),
        };
        self.connection.execute_batch("BEGIN").unwrap();
        self.writes_left.set(writes);
        let result = run();
        self.writes_left.set(None);
        let end = if result.is_err() && roll_back { "ROLLBACK" } else { "COMMIT" };
        self.connection.execute_batch(end).unwrap();
        result
    }

    pub fn spoilt_hits(&self) -> u32 {
        self.spoilt_hits.get()
    }

    /// The virtual machine steps SQLite took for `run`.
    pub fn count_steps<T>(&self, run: impl FnOnce() -> T) -> u64 {
        *self.steps.borrow_mut() = Some(0);
        run();
        self.steps.borrow_mut().take().unwrap()
    }

    fn text(&self, query: &str) -> String {
        let mut text = query.to_owned();
        for (written, spoilt) in &self.spoilt {
            if text.contains(written) {
                self.spoilt_hits.set(self.spoilt_hits.get() + 1);
                text = text.replace(written, spoilt);
            }
        }
        text
    }

    fn query<T: DeserializeOwned>(&self, query: &str, binds: &[Bind<'_>]) -> rusqlite::Result<Vec<T>> {
        let mut statement = self.connection.prepare_cached(&self.text(query))?;
        let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let values = binds.iter().map(|bind| match bind {
            Bind::Text(text) => rusqlite::types::Value::Text((*text).to_owned()),
            Bind::Number(number) => rusqlite::types::Value::Integer(i64::try_from(*number).unwrap()),
        });
        statement.reset_status(StatementStatus::VmStep);
        let mut rows = statement.query(params_from_iter(values))?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let mut object = Map::new();
            for (at, name) in names.iter().enumerate() {
                let value = match row.get_ref(at)? {
                    ValueRef::Null => Value::Null,
                    ValueRef::Integer(number) => number.into(),
                    ValueRef::Text(text) => std::str::from_utf8(text).unwrap().into(),
                    other => panic!("no column of this kind: {other:?}"),
                };
                object.insert(name.clone(), value);
            }
            found.push(serde_json::from_value(object.into()).unwrap());
        }
        drop(rows);
        if let Some(steps) = &mut *self.steps.borrow_mut() {
            *steps += u64::try_from(statement.get_status(StatementStatus::VmStep)).unwrap();
        }
        Ok(found)
    }
}

impl Sql for Sqlite {
    type Error = Fault;

    fn run(&self, query: &str, binds: &[Bind<'_>]) -> Result<(), Fault> {
        match self.writes_left.get() {
            Some(0) => return Err(Fault::Cut),
            Some(left) => self.writes_left.set(Some(left - 1)),
            None => {}
        }
        self.query::<Value>(query, binds).map(drop).map_err(Fault::Sqlite)
    }

    fn rows<T: DeserializeOwned>(&self, query: &str, binds: &[Bind<'_>]) -> Result<Vec<T>, Fault> {
        self.query(query, binds).map_err(Fault::Sqlite)
    }
}
