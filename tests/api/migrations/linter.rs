//! Reads migrations, in order, and finds what would hurt a table that is in use. The rules are
//! those of `docs/migrations.md`; what the linter doesn't know is refused too.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "the parser knows statements of many databases; those not named here are refused"
)]

use sqlparser::{
    ast::{
        AlterColumnOperation, AlterTable, AlterTableOperation, ColumnDef, ColumnOption,
        ContextModifier, CreateIndex, CreateTable, DataType, Expr, Function, IndexColumn,
        ObjectType, Query, Set, SetExpr, Statement, TableConstraint, TableObject, Value,
    },
    dialect::PostgreSqlDialect,
    parser::Parser,
    tokenizer::{Token, Tokenizer, Whitespace},
};

use crate::support::prelude::*;

/// Longest a migration may wait for a lock, in milliseconds: requests queue behind it.
const LOCK_TIMEOUT_MAX: u64 = 5_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The linter can't read it, or doesn't know that it is safe.
    NotKnownToBeSafe,
    /// The first statement isn't `SET LOCAL lock_timeout` of at most five seconds.
    NoLockTimeout,
    /// A constraint checks all rows under a lock that blocks writes.
    NoNotValid,
    /// A constraint is validated in the file, and so in the transaction, that adds it.
    ValidatedTooEarly,
    /// A unique or primary key builds its index under a lock that blocks writes.
    KeyWithoutIndex,
    /// An index is created or dropped under a lock that blocks writes.
    NotConcurrently,
    /// `CONCURRENTLY` in a transaction.
    ConcurrentlyInTransaction,
    /// A file without a transaction holds more than one statement: half of it could be applied.
    NotAlone,
    /// A file without a transaction, for a statement that needs none.
    NeedlesslyWithoutTransaction,
    /// `IF NOT EXISTS` takes the invalid index of a failed attempt for a finished one.
    TakesInvalidIndex,
    /// `SET NOT NULL` reads all rows: no validated CHECK of an earlier migration proves it.
    NotNullUnproven,
    /// A new type rewrites the table, and the running release doesn't know it.
    ChangesType,
    /// A new column whose default or generated value rewrites the table.
    RewritesTable,
    /// A new column that the running release doesn't fill in, and can't leave out.
    NotNullWithoutDefault,
    /// Rows are changed inside a migration: one transaction locks them all.
    ChangesRows,
    /// Something that the running release may use is removed or renamed, and no comment
    /// `-- contract: …` says why it isn't used.
    ContractsUnmarked,
    /// An index or a key on text that the database's locale sorts: another version of the C library
    /// sorts it differently, and the index then misses what it holds.
    SortedByLocale,
}

/// The state between two migrations.
#[derive(Debug, Default)]
pub struct Linter {
    /// `CHECK (column IS NOT NULL)` that was added and not validated: (table, constraint) → column.
    unproven: HashMap<(String, String), String>,
    /// (table, column) without NULLs, as a validated CHECK of an earlier migration says.
    proven: HashSet<(String, String)>,
    /// (table, column) of text that has no `COLLATE "C"`.
    by_locale: HashSet<(String, String)>,
}

/// What is known while one file is read.
struct File<'a> {
    linter: &'a mut Linter,
    faults: Vec<Fault>,
    created_tables: HashSet<String>,
    added_constraints: HashSet<(String, String)>,
    newly_proven: Vec<(String, String)>,
    has_transaction: bool,
    has_contract_marker: bool,
}

impl Linter {
    /// Reads the next migration. Each fault is named once for each statement that has it.
    pub fn faults(&mut self, sql: &str) -> Vec<Fault> {
        let Ok(tokens) = Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize() else {
            return vec![Fault::NotKnownToBeSafe];
        };
        let mut file = File {
            linter: self,
            faults: Vec::new(),
            created_tables: HashSet::new(),
            added_constraints: HashSet::new(),
            newly_proven: Vec::new(),
            // As sqlx reads it.
            has_transaction: !sql.starts_with("-- no-transaction"),
            has_contract_marker: tokens.iter().any(is_contract_marker),
        };
        let (tokens, dropped_concurrently) = readable(tokens);
        let parsed = Parser::new(&PostgreSqlDialect {})
            .with_tokens(tokens)
            .parse_statements();
        match parsed {
            Ok(statements) => file.read(&statements, dropped_concurrently),
            Err(_) => file.faults.push(Fault::NotKnownToBeSafe),
        }
        let File {
            newly_proven,
            faults,
            ..
        } = file;
        self.proven.extend(newly_proven);
        faults
    }
}

fn is_contract_marker(token: &Token) -> bool {
    let Token::Whitespace(Whitespace::SingleLineComment { comment, .. }) = token else {
        return false;
    };
    comment
        .trim()
        .strip_prefix("contract:")
        .is_some_and(|reason| reason.split_whitespace().count() >= 3)
}

/// Says what the parser doesn't know in other words. It takes `CONCURRENTLY` out of every `DROP
/// INDEX CONCURRENTLY`, and counts them. `TYPE text COLLATE "C"` becomes `TYPE text USING "C"`.
/// When a key is checked is in the catalogs alone, as a constraint's name is: `ALTER CONSTRAINT x
/// DEFERRABLE INITIALLY DEFERRED` becomes `RENAME CONSTRAINT x TO DEFERRED`.
fn readable(tokens: Vec<Token>) -> (Vec<Token>, usize) {
    let mut kept: Vec<Token> = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut count = 0;
    for token in tokens {
        if let Token::Word(word) = &token {
            let word = word.value.to_uppercase();
            if word == "CONCURRENTLY" && words.ends_with(&["DROP".into(), "INDEX".into()]) {
                count += 1;
                continue;
            }
            let before = words.iter().rev().nth(1);
            let is_of_constraint = before.is_some_and(|it| it == "CONSTRAINT");
            let altered = |token: &Token| *token == Token::make_keyword("ALTER");
            if word == "DEFERRABLE"
                && is_of_constraint
                && let Some(alter) = kept.iter().rposition(altered)
            {
                kept[alter] = Token::make_keyword("RENAME");
                kept.push(Token::make_keyword("TO"));
                continue;
            }
            if word == "INITIALLY" {
                continue;
            }
            // In CREATE TABLE, TYPE is a column's name.
            let is_collation = word == "COLLATE"
                && words.first().is_some_and(|first| first == "ALTER")
                && words.ends_with(&["TYPE".into(), "TEXT".into()]);
            words.push(word);
            if is_collation {
                kept.push(Token::make_keyword("USING"));
                continue;
            }
        }
        if token == Token::SemiColon {
            words.clear();
        }
        kept.push(token);
    }
    (kept, count)
}

fn column_of(table: &str, name: &impl ToString) -> (String, String) {
    (table.to_owned(), named(name))
}

/// The name without quotes, in the default schema or another one.
fn named(name: &impl ToString) -> String {
    let name = name.to_string().replace('"', "");
    name.trim_start_matches("public.").to_owned()
}

impl File<'_> {
    fn fault(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    fn read(&mut self, statements: &[Statement], dropped_concurrently: usize) {
        let is_concurrent = dropped_concurrently > 0
            || statements.iter().any(
                |statement| matches!(statement, Statement::CreateIndex(index) if index.concurrently),
            );
        if self.has_transaction {
            if !statements.first().is_some_and(sets_lock_timeout) {
                self.fault(Fault::NoLockTimeout);
            }
            if is_concurrent {
                self.fault(Fault::ConcurrentlyInTransaction);
            }
        } else if !is_concurrent {
            self.fault(Fault::NeedlesslyWithoutTransaction);
        } else if statements.len() != 1 {
            self.fault(Fault::NotAlone);
        }
        for statement in statements {
            self.read_statement(statement, dropped_concurrently > 0);
        }
    }

    fn read_statement(&mut self, statement: &Statement, drops_concurrently: bool) {
        match statement {
            Statement::Set(_) if sets_lock_timeout(statement) => {}
            Statement::CreateTable(table) if table.query.is_none() => self.create_table(table),
            Statement::CreateIndex(index) => self.create_index(index),
            Statement::AlterTable(table) => self.alter_table(table),
            // A new one is used by no release before.
            Statement::CreateFunction(function) if !function.or_replace => {}
            // ANALYZE reads a fixed number of rows.
            Statement::Comment { .. } | Statement::CreateView(_) | Statement::Analyze(_) => {}
            Statement::Insert(insert) => {
                let into_new = match &insert.table {
                    TableObject::TableName(name) => self.created_tables.contains(&named(name)),
                    _ => false,
                };
                let is_literal = insert.source.as_deref().is_some_and(is_literal_rows);
                if !into_new && !is_literal {
                    self.fault(Fault::ChangesRows);
                }
            }
            Statement::Update(_)
            | Statement::Delete(_)
            | Statement::Merge(_)
            | Statement::Truncate(_) => self.fault(Fault::ChangesRows),
            Statement::Drop {
                object_type: ObjectType::Index,
                ..
            } => {
                if !drops_concurrently {
                    self.fault(Fault::NotConcurrently);
                }
            }
            Statement::Drop {
                object_type: ObjectType::Table | ObjectType::View,
                cascade: false,
                ..
            } => self.contract(),
            _ => self.fault(Fault::NotKnownToBeSafe),
        }
    }

    fn contract(&mut self) {
        if !self.has_contract_marker {
            self.fault(Fault::ContractsUnmarked);
        }
    }

    fn create_table(&mut self, table: &CreateTable) {
        let name = named(&table.name);
        for column in &table.columns {
            self.know_order(&name, column);
        }
        for constraint in &table.constraints {
            match constraint {
                TableConstraint::PrimaryKey(key) => self.index(&name, &key.columns),
                TableConstraint::Unique(key) => self.index(&name, &key.columns),
                _ => {}
            }
        }
        self.created_tables.insert(name);
    }

    /// Notes what sorts a column.
    fn know_order(&mut self, table: &str, column: &ColumnDef) {
        let options = || column.options.iter().map(|option| &option.option);
        let is_in_byte_order =
            options().any(|option| matches!(option, ColumnOption::Collation(name) if is_c(&name.0[0].to_string())));
        if is_in_byte_order || !is_text(&column.data_type) {
            return;
        }
        self.linter.by_locale.insert(column_of(table, &column.name));
        let mut keys = options();
        if keys.any(|it| matches!(it, ColumnOption::Unique(_) | ColumnOption::PrimaryKey(_))) {
            self.fault(Fault::SortedByLocale);
        }
    }

    /// Reads the columns and expressions of an index. Those that name text of the locale must say
    /// `COLLATE "C"`.
    fn index(&mut self, table: &str, columns: &[IndexColumn]) {
        let is_by_locale = |column: &IndexColumn| {
            let expression = column.column.expr.to_string();
            let mut words = expression.split(|c: char| !c.is_alphanumeric() && c != '_');
            !expression.ends_with("COLLATE \"C\"")
                && words.any(|word| self.linter.by_locale.contains(&column_of(table, &word)))
        };
        if columns.iter().any(is_by_locale) {
            self.fault(Fault::SortedByLocale);
        }
    }

    fn create_index(&mut self, index: &CreateIndex) {
        let table = named(&index.table_name);
        self.index(&table, &index.columns);
        if self.created_tables.contains(&table) {
            return;
        }
        if !index.concurrently {
            self.fault(Fault::NotConcurrently);
        } else if index.if_not_exists {
            self.fault(Fault::TakesInvalidIndex);
        }
    }

    fn alter_table(&mut self, table: &AlterTable) {
        let name = named(&table.name);
        if self.created_tables.contains(&name) {
            return;
        }
        for operation in &table.operations {
            self.alter(&name, operation);
        }
    }

    fn alter(&mut self, table: &str, operation: &AlterTableOperation) {
        match operation {
            AlterTableOperation::AddConstraint {
                constraint,
                not_valid,
            } => self.add_constraint(table, constraint, *not_valid),
            AlterTableOperation::ValidateConstraint { name } => {
                let key = column_of(table, name);
                if self.added_constraints.contains(&key) {
                    self.fault(Fault::ValidatedTooEarly);
                }
                if let Some(column) = self.linter.unproven.remove(&key) {
                    self.newly_proven.push((table.to_owned(), column));
                }
            }
            AlterTableOperation::AddColumn { column_def, .. } => {
                self.know_order(table, column_def);
                self.add_column(column_def);
            }
            AlterTableOperation::AlterColumn { column_name, op } => match op {
                AlterColumnOperation::SetNotNull => {
                    if !self.linter.proven.contains(&column_of(table, column_name)) {
                        self.fault(Fault::NotNullUnproven);
                    }
                }
                AlterColumnOperation::SetDataType {
                    data_type, using, ..
                } => {
                    self.fault(Fault::ChangesType);
                    let key = column_of(table, column_name);
                    if matches!(using, Some(Expr::Identifier(collation)) if is_c(&collation.to_string())) {
                        self.linter.by_locale.remove(&key);
                    } else if is_text(data_type) {
                        self.linter.by_locale.insert(key);
                    }
                }
                AlterColumnOperation::DropNotNull
                | AlterColumnOperation::SetDefault { .. }
                | AlterColumnOperation::DropDefault => {}
                AlterColumnOperation::AddGenerated { .. } => self.fault(Fault::RewritesTable),
            },
            AlterTableOperation::DropConstraint {
                drop_behavior: None,
                ..
            }
            | AlterTableOperation::RenameConstraint { .. }
            // How full pages are written, and when they are vacuumed: no row is read.
            | AlterTableOperation::SetOptionsParens { .. } => {}
            AlterTableOperation::DropColumn {
                drop_behavior: None,
                ..
            }
            | AlterTableOperation::RenameColumn { .. }
            | AlterTableOperation::RenameTable { .. } => self.contract(),
            _ => self.fault(Fault::NotKnownToBeSafe),
        }
    }

    fn add_constraint(&mut self, table: &str, constraint: &TableConstraint, not_valid: bool) {
        let name = match constraint {
            TableConstraint::Check(check) => check.name.as_ref(),
            TableConstraint::ForeignKey(key) => key.name.as_ref(),
            TableConstraint::PrimaryKeyUsingIndex(_) | TableConstraint::UniqueUsingIndex(_) => {
                return;
            }
            TableConstraint::PrimaryKey(_) | TableConstraint::Unique(_) => {
                return self.fault(Fault::KeyWithoutIndex);
            }
            _ => return self.fault(Fault::NotKnownToBeSafe),
        };
        if !not_valid {
            return self.fault(Fault::NoNotValid);
        }
        let Some(name) = name else {
            return self.fault(Fault::NotKnownToBeSafe);
        };
        let key = column_of(table, name);
        self.added_constraints.insert(key.clone());
        if let TableConstraint::Check(check) = constraint
            && let Expr::IsNotNull(column) = check.expr.as_ref()
            && let Expr::Identifier(column) = column.as_ref()
        {
            self.linter.unproven.insert(key, named(column));
        }
    }

    fn add_column(&mut self, column: &ColumnDef) {
        let mut is_nullable = true;
        let mut has_default = false;
        for option in &column.options {
            match &option.option {
                ColumnOption::Null | ColumnOption::Collation(_) => {}
                ColumnOption::NotNull => is_nullable = false,
                ColumnOption::Default(value) => {
                    has_default = true;
                    if !is_computed_once(value) {
                        self.fault(Fault::RewritesTable);
                    }
                }
                ColumnOption::Generated { .. } | ColumnOption::Identity(_) => {
                    self.fault(Fault::RewritesTable);
                }
                ColumnOption::Check(_) | ColumnOption::ForeignKey(_) => {
                    self.fault(Fault::NoNotValid);
                }
                ColumnOption::Unique(_) | ColumnOption::PrimaryKey(_) => {
                    self.fault(Fault::KeyWithoutIndex);
                }
                _ => self.fault(Fault::NotKnownToBeSafe),
            }
        }
        if !is_nullable && !has_default {
            self.fault(Fault::NotNullWithoutDefault);
        }
    }
}

fn is_c(collation: &str) -> bool {
    collation == "\"C\""
}

fn is_text(data_type: &DataType) -> bool {
    let name = data_type.to_string().to_lowercase();
    let mut texts = ["text", "char", "varchar", "citext"].iter();
    texts.any(|text| name.starts_with(text))
}

/// `SET LOCAL lock_timeout = '2s'`, at most [`LOCK_TIMEOUT_MAX`]. Zero would wait forever.
fn sets_lock_timeout(statement: &Statement) -> bool {
    let Statement::Set(Set::SingleAssignment {
        scope: Some(ContextModifier::Local),
        variable,
        values,
        ..
    }) = statement
    else {
        return false;
    };
    let [Expr::Value(value)] = values.as_slice() else {
        return false;
    };
    let milliseconds = match &value.value {
        Value::SingleQuotedString(text) => match text.strip_suffix("ms") {
            Some(number) => number.trim().parse().ok(),
            None => text.strip_suffix('s').and_then(|number| {
                let seconds: u64 = number.trim().parse().ok()?;
                seconds.checked_mul(1000)
            }),
        },
        _ => None,
    };
    named(variable).eq_ignore_ascii_case("lock_timeout")
        && milliseconds.is_some_and(|wait| (1..=LOCK_TIMEOUT_MAX).contains(&wait))
}

/// Rows that the file itself spells out: a fixed, small number.
fn is_literal_rows(source: &Query) -> bool {
    source.with.is_none() && matches!(source.body.as_ref(), SetExpr::Values(_))
}

/// Whether PostgreSQL computes a default once for all existing rows instead of rewriting the table.
fn is_computed_once(value: &Expr) -> bool {
    match value {
        Expr::Value(_) => true,
        Expr::Cast { expr, .. } | Expr::UnaryOp { expr, .. } | Expr::Nested(expr) => {
            is_computed_once(expr)
        }
        Expr::Array(array) => array.elem.iter().all(is_computed_once),
        Expr::Function(Function { name, .. }) => {
            let stable = ["now", "current_timestamp", "current_date"];
            stable.contains(&named(name).to_lowercase().as_str())
        }
        _ => false,
    }
}
