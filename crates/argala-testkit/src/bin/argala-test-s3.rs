//! `argala-test-s3 FOLDER BUCKET`: an S3 over a folder, for a cluster on one machine to try out.
//!
//! It makes the bucket, says in a line of JSON where it is and by which key it is used, and ends
//! with its standard input, which whoever started it holds.

use std::{
    env,
    io::{self, Read as _, Write as _},
    process::ExitCode,
};

use argala_testkit::servers::S3Server;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [folder, bucket] = arguments.as_slice() else {
        let _ = writeln!(io::stderr(), "argala-test-s3 FOLDER BUCKET");
        return ExitCode::from(2);
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(S3Server::start_in(folder));
    server.make_bucket(bucket);
    let place = server.place();
    let told = serde_json::json!({
        "endpoint": place.endpoint,
        "id": place.id,
        "secret": place.secret,
    });
    if writeln!(io::stdout(), "{told}").is_err() {
        return ExitCode::FAILURE;
    }
    // Whatever comes is not for us; that nothing comes any more is.
    let _ = io::stdin().read_to_end(&mut Vec::new());
    ExitCode::SUCCESS
}
