//! The model against the relay on SQLite.

use std::{path::Path, sync::Arc};

use argala_core::ports::BlobStore;
use argala_sqlite::{Options, Sqlite};
use argala_testkit::conformance::{Fresh, relay::RelayPorts};

use super::{FEW_REQUESTS, ROOMY, SMALL, Settings, cases, drive::Setting, meets, model_tests};

/// A database of its own, which keeps the blobs too. In memory where the system has a folder for
/// that: durability is other tests' matter, and every commit waits for the disk.
async fn fresh() -> Fresh<RelayPorts> {
    let memory = Path::new("/dev/shm");
    let folder = tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir());
    let folder = folder.expect("a folder");
    let options = Options {
        readers: 1,
        ..Options::default()
    };
    let database = Sqlite::open(folder.path().join("relay.db"), &options).expect("a database");
    let database = Arc::new(database);
    let blobs: Arc<dyn BlobStore> = Arc::<Sqlite>::clone(&database);
    let ports = RelayPorts {
        store: database,
        blobs,
    };
    Fresh::new(Arc::new(ports), folder)
}

model_tests! { fresh,
    small_ceilings: cases(450), 50, Setting { settings: SMALL, sizes: None };
    optional_signatures: cases(450), 50, Setting {
        settings: Settings { signatures_required: false, ..SMALL },
        sizes: None,
    };
    listed_groups: cases(400), 50, Setting {
        settings: Settings { lists_groups: true, ..SMALL },
        sizes: None,
    };
    roomy_ceilings: cases(400), 50, Setting { settings: ROOMY, sizes: None };
    small_allowances: cases(250), 50, Setting { settings: FEW_REQUESTS, sizes: None };
    pages_full_of_bytes: 12, 24, Setting {
        settings: Settings { signatures_required: true, ..ROOMY },
        sizes: Some(&[12, 1_000_000, 1_500_000, 2_500_000, 4 * 1024 * 1024, 1, 0, 64]),
    };
}

#[test]
fn the_cases_meet_what_there_is() {
    let small = Setting {
        settings: SMALL,
        sizes: None,
    };
    let few = Setting {
        settings: FEW_REQUESTS,
        sizes: None,
    };
    meets(fresh, &[(120, small), (24, few)]);
}
