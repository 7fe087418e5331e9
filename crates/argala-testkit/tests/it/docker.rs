//! Servers in containers. The image is made here, of this machine's own Postgres, so that the tests
//! need no registry; it keeps to what the official image's entry point promises.

use std::{env, fs, process::Command, time::Duration};

use argala_testkit::{
    PATIENCE,
    servers::{PostgresContainer, Session, postgres},
};

const IMAGE: &str = "argala-test-of-this-machine:postgres";

const ENTRY_POINT: &str = r#"set -e
umask 077
printf %s "$POSTGRES_PASSWORD" >"$PGDATA.password"
initdb --username "$POSTGRES_USER" --pwfile "$PGDATA.password" --auth scram-sha-256 \
  --pgdata "$PGDATA" --no-sync
echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
exec "$@" -D "$PGDATA" -c listen_addresses='*' -c unix_socket_directories=
"#;

/// The programs, what they load, a shell. $1: Postgres's programs; $2: the folder with the entry
/// point; $3: the image.
const RECIPE: &str = r#"set -e
libraries=$("$1/pg_config" --pkglibdir)
{
  for file in "$1/postgres" "$1/initdb" /bin/sh "$libraries"/*.so; do
    echo "$file"
    ldd "$file" | grep -o '/[^ ]*' || :
  done
  "$1/pg_config" --sharedir
  printf '%s\n' /usr/share/zoneinfo/UTC /etc/passwd /etc/group
} | sort -u >"$2/files"
tar -c --dereference -f "$2/image.tar" -T "$2/files" -C "$2" entry-point.sh 2>"$2/log" ||
  { cat "$2/log" >&2; exit 1; }
docker import --change "ENV PATH=$1:/bin:/usr/bin" --change 'USER postgres' \
  --change 'ENTRYPOINT ["/bin/sh", "/entry-point.sh"]' "$2/image.tar" "$3"
"#;

fn make_image() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("entry-point.sh"), ENTRY_POINT).unwrap();
    let programs = argala_servers::postgres_programs().expect("an installed Postgres");
    // What is on the path may only point at where all of them are.
    let postgres = programs.join("postgres").canonicalize().unwrap();
    let output = Command::new("sh")
        .args(["-c", RECIPE, "sh"])
        .arg(postgres.parent().unwrap())
        .arg(folder.path())
        .arg(IMAGE)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn docker(arguments: &[&str]) -> String {
    let output = Command::new("docker").args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_is_reached_from_this_machine_alone_and_removed_with_its_owner() {
    make_image();
    let settings = [("max_connections", "23")];
    let server = PostgresContainer::start(IMAGE, &settings).await.unwrap();
    let server = server.expect("an engine that has the image");
    let client = Session::open(&server.url()).await;
    assert_eq!(client.text("show max_connections").await, "23");
    let published = docker(&["port", server.id()]);
    assert!(
        published.lines().all(|line| line.contains("-> 127.0.0.1:")),
        "{published}"
    );
    let id = server.id().to_owned();
    drop(server);
    tokio::time::timeout(PATIENCE, gone(&id))
        .await
        .expect("gone");
}

/// Waits until the engine knows no container of that name.
async fn gone(id: &str) {
    while docker(&["ps", "--all", "--quiet", "--no-trunc"]).contains(id) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn what_the_engine_neither_has_nor_gets_is_left_to_the_machine() {
    let nobody_has_it = "argala-test-nobody-has-it:1";
    let server = PostgresContainer::start(nobody_has_it, &[]).await.unwrap();
    assert!(server.is_none());
}

#[tokio::test]
async fn an_image_that_runs_no_server_is_a_failure_and_not_overlooked() {
    make_image();
    // The server refuses to run so.
    let settings = [("max_connections", "none")];
    let failure = PostgresContainer::start(IMAGE, &settings)
        .await
        .unwrap_err();
    assert!(failure.to_string().contains("max_connections"), "{failure}");
}

/// A run of its own, with its own folder, so that the server that other tests share is not in the
/// way.
#[test]
fn the_shared_server_is_a_container_where_there_can_be_one() {
    make_image();
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "docker::of_the_run_of_its_own", "--ignored"])
        .env("ARGALA_TEST_POSTGRES_IMAGE", IMAGE)
        .env("TMPDIR", folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let below = fs::read_dir(folder.path()).unwrap().next().unwrap();
    let named_in = below.unwrap().path().join("shared/server/container");
    let id = fs::read_to_string(&named_in).unwrap();
    // The watchdog's turn: nobody uses it any more.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    // It gives others ten seconds to come.
    let is_gone = async { tokio::time::timeout(2 * PATIENCE, gone(id.trim())).await };
    runtime.block_on(is_gone).expect("gone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by `the_shared_server_is_a_container_where_there_can_be_one`"]
async fn of_the_run_of_its_own() {
    let database = postgres().await;
    let client = Session::open(&database.url()).await;
    // One of this machine's processes would be reached at 127.0.0.1.
    let at = client.text("select host(inet_server_addr())").await;
    assert_ne!(at, "127.0.0.1");
    let pooled = Session::open(&database.bouncer_url()).await;
    let name = pooled.text("select current_database()").await;
    assert_eq!(name, database.name());
}
