//! Real daemons from Debian's packages, as they daemonize themselves. Where one is not installed the case is shown as ignored.

use super::*;

const REDIS: &str = "/usr/bin/redis-server";
const NGINX: &str = "/usr/sbin/nginx";

pub const CASE: Case = Case {
    name: "redis and nginx as real daemons",
    command: |stage, _| {
        let place = stage.path().display();
        let redis = format!(
            "{REDIS} --daemonize yes --port 0 --unixsocket {place}/redis.sock --save '' --dir {place}"
        );
        std::fs::write(
            stage.path().join("nginx.conf"),
            format!("user root; pid {place}/nginx.pid; error_log {place}/nginx.log; events {{}} http {{ access_log off; \
                     client_body_temp_path {place}/b; proxy_temp_path {place}/p; fastcgi_temp_path {place}/f; \
                     uwsgi_temp_path {place}/u; scgi_temp_path {place}/s; server {{ listen unix:{place}/nginx.sock; }} }}"),
        )
        .unwrap();
        let nginx = format!("{NGINX} -c {place}/nginx.conf -e {place}/nginx.log");
        stage.shell(&format!("{redis} && {nginx} && $SIT"))
    },
    born: 1,
    escapes_a_process_group: true,
    needs: &[REDIS, NGINX],
    before: |stage, _| {
        for socket in ["redis.sock", "nginx.sock"] {
            crate::harness::wait_for(socket, || UnixStream::connect(stage.path().join(socket)).ok());
        }
        Ok(())
    },
    dead: |stage| {
        for socket in ["redis.sock", "nginx.sock"] {
            if UnixStream::connect(stage.path().join(socket)).is_ok() {
                return Err(format!("{socket} still answers"));
            }
        }
        Ok(())
    },
    ..Case::PLAIN
};
