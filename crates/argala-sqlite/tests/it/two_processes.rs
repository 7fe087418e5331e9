//! Two that write to one database at the same time, as a relay and an operator's tool do.

use std::sync::Arc;

use argala_core::ports::{Directory, DirectoryTables, Store};
use argala_sqlite::{Options, Sqlite};
use argala_testkit::{TestDevice, member};

use crate::scene::{Scene, graph, records};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn both_get_through_and_see_each_other() {
    let scene = Arc::new(Scene::new());
    let devices = scene.devices("sam", 1).await;
    let key = graph("acme");
    scene.rotate(&key, 1, &devices).await;

    let path = scene.folder.path().join("relay.db");
    let other = Sqlite::open(path, &Options::default()).unwrap();
    assert_eq!(other.instance(), scene.db.instance());
    let operator = tokio::spawn(async move {
        for at in 0..150 {
            assert!(other.add_member(&member(&format!("m{at}"))).await.unwrap());
        }
        other
    });
    let pusher = {
        let (scene, key, device): (_, _, TestDevice) =
            (Arc::clone(&scene), key.clone(), devices[0].clone());
        tokio::spawn(async move {
            for at in 0..150 {
                let pushed = records(&key, &device, 1, &format!("content {at}"));
                assert_eq!(scene.push(&key, &device, pushed).await.head, at + 1);
            }
        })
    };
    let other = operator.await.unwrap();
    pusher.await.unwrap();
    assert!(scene.db.is_active_member(&member("m149")).await.unwrap());
    assert_eq!(other.graph(&key).await.unwrap().unwrap().head, 150);

    // A fresh database, opened by several at once: one migrates it, the others find it done.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("relay.db");
    let opening: Vec<_> = (0..8)
        .map(|_| {
            let path = path.clone();
            tokio::task::spawn_blocking(move || Sqlite::open(path, &Options::default()).unwrap())
        })
        .collect();
    let mut instances = std::collections::BTreeSet::new();
    for opened in opening {
        instances.insert(opened.await.unwrap().instance().to_owned());
    }
    assert_eq!(instances.len(), 1);
}
