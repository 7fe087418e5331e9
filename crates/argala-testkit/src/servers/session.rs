//! A session on a database, for a test's own statements.

use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// A session of a test's own: to look at what was stored, and to hold a lock where nobody expects
/// one. What it has not committed is undone when it is dropped.
///
/// Every method panics where it fails: the panic is the report.
#[derive(Debug)]
pub struct Session(Client);

impl Session {
    /// Begins a session on the database at `url`.
    pub async fn open(url: &str) -> Self {
        Self::try_open(url).await.expect("a session")
    }

    /// Begins a session, where the server lets us.
    ///
    /// # Errors
    /// The server's, or the network's.
    pub async fn try_open(url: &str) -> Result<Self, tokio_postgres::Error> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        // Ends when the client is dropped.
        tokio::spawn(connection);
        Ok(Self(client))
    }

    /// Runs statements and looks at no answer.
    pub async fn run(&self, statements: &str) {
        self.try_run(statements).await.expect(statements);
    }

    /// Runs statements, where the server lets us.
    ///
    /// # Errors
    /// The server's, or the network's.
    pub async fn try_run(&self, statements: &str) -> Result<(), tokio_postgres::Error> {
        self.0.batch_execute(statements).await
    }

    /// The first column of every row, as text; `None` is NULL.
    pub async fn column(&self, question: &str) -> Vec<Option<String>> {
        let answer = self.0.simple_query(question).await.expect(question);
        answer
            .iter()
            .filter_map(|message| match message {
                SimpleQueryMessage::Row(row) => Some(row.get(0).map(str::to_owned)),
                _ => None,
            })
            .collect()
    }

    /// The only value of the only row, as text.
    pub async fn text(&self, question: &str) -> String {
        let mut column = self.column(question).await;
        assert_eq!(column.len(), 1, "{question}: {column:?}");
        column.remove(0).expect(question)
    }
}
