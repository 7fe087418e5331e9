//! One server.

crate::suites::suites!(argala_testkit::servers::PrivateRedis::start);
