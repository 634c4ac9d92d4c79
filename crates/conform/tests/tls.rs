//! Replies are lost over TLS, too.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may stop at the first surprise"
)]

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
};

use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

/// The server of the example behind a process that ends TLS.
struct Served {
    url: String,
    folder: PathBuf,
    process: Child,
}

impl Served {
    fn start(mistake: &str) -> Self {
        let test = std::env::current_exe().unwrap();
        let program = test
            .parent()
            .unwrap()
            .parent()
            .unwrap()
            .join("examples")
            .join("wrong");
        let mut starting = Command::new(program);
        starting.arg(mistake).stdout(Stdio::piped());
        let mut process = starting.spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let plain = line
            .trim()
            .strip_prefix("listening on http://")
            .unwrap()
            .to_owned();
        let folder = std::env::temp_dir().join(format!("conform-tls-{}", process.id()));
        std::fs::create_dir_all(&folder).unwrap();
        let config = Arc::new(certified(&folder));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, config, plain) = (client.unwrap(), config.clone(), plain.clone());
                thread::spawn(move || pass(client, config, &plain));
            }
        });
        Self {
            url,
            folder,
            process,
        }
    }

    /// The outcomes of the checks, by name.
    fn conform(&self, only: &str) -> serde_json::Value {
        let config = concat!(env!("CARGO_MANIFEST_DIR"), "/wrong/api.toml");
        let mut program = Command::new(env!("CARGO_BIN_EXE_charge-once-conform"));
        program.args([&self.url, "--config", config, "--only", only, "--json"]);
        let output = program.env("SSL_CERT_FILE", self.folder.join("certificate.pem"));
        let output = output.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&error);
        let findings = report["findings"].as_array().unwrap().iter();
        findings
            .map(|one| {
                (
                    one["name"].as_str().unwrap().to_owned(),
                    one["outcome"].clone(),
                )
            })
            .collect()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A certificate of its own, which the client is told to trust.
fn certified(folder: &Path) -> ServerConfig {
    let [key, certificate] = ["key.pem", "certificate.pem"].map(|name| folder.join(name));
    let mut openssl = Command::new("openssl");
    openssl.args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes".split(' '));
    openssl.args("-days 2 -subj /CN=conform -addext subjectAltName=IP:127.0.0.1".split(' '));
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"]);
    let made = openssl
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let key = PrivateKeyDer::from_pem_file(key).unwrap();
    let certificate = CertificateDer::from_pem_file(certificate).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_no_client_auth();
    builder.with_single_cert(vec![certificate], key).unwrap()
}

/// Passes on one request and its reply, which the client may be too early gone to get.
fn pass(client: TcpStream, config: Arc<ServerConfig>, plain: &str) -> io::Result<()> {
    let session = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut client = StreamOwned::new(session, client);
    let request = message(&mut client)?;
    let mut server = TcpStream::connect(plain)?;
    server.write_all(&request)?;
    let reply = message(&mut server)?;
    client.write_all(&reply)?;
    client.flush()
}

/// Reads a head and as much as its Content-Length says.
fn message(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        from.read_exact(&mut byte)?;
        bytes.extend(byte);
    }
    let head = String::from_utf8_lossy(&bytes).to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    from.read_exact(&mut body)?;
    Ok([bytes, body].concat())
}

#[test]
fn replies_are_lost_over_tls() {
    let right = Served::start("none").conform("lost_reply,disconnect,storm,cut_request");
    let expected = serde_json::json!({
        "lost_reply": "holds", "disconnect": "holds", "storm": "holds", "cut_request": "not_known"
    });
    assert_eq!(right, expected);
    let wrong = Served::start("keys-ignored").conform("lost_reply,disconnect");
    // The second one is an echo of the first one.
    let expected = serde_json::json!({ "lost_reply": "unsafe", "disconnect": "not_known" });
    assert_eq!(wrong, expected);
}
