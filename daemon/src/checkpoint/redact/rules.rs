//! The rules that find a secret by its place or by its issuer's shape: data, in one table.
//!
//! Group `v` of a pattern is the value. In the examples `‹…›` stands around what has to go; `{a24}` and its like are
//! composed when the test runs (24 letters and digits; `h` hexadecimal, `w` also `_` and `-`, `d` digits, `p` a
//! password), so that no scanner finds a secret in this file. Names and their values are in `named`.

/// What a value must be, besides standing where the pattern says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// Anything that is no reference and no placeholder.
    Any,
    /// Mixed as nobody writes words.
    Plausible,
    /// A list of cookies: those go whose names say that they open a session.
    Cookies,
    /// A block between markers: only what is gone already stays.
    Block,
    /// An issuer's token: with a digit in it, and not within a longer word.
    Token,
}

/// A rule.
pub(super) struct Rule {
    pub(super) pattern: &'static str,
    pub(super) check: Check,
    /// Where its form is documented.
    #[cfg_attr(
        not(test),
        expect(
            dead_code,
            reason = "for the reader, and for the test that shows what fails"
        )
    )]
    pub(super) source: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "they are the rule's tests"))]
    pub(super) examples: &'static [&'static str],
}

use Check::{Any, Block, Cookies, Plausible, Token};

const fn rule(
    check: Check,
    source: &'static str,
    pattern: &'static str,
    examples: &'static [&'static str],
) -> Rule {
    Rule {
        pattern,
        check,
        source,
        examples,
    }
}

/// `{VALUE}` in a pattern: a value, in quotes or bare.
pub(super) const VALUE: &str =
    r#"(?:"(?P<v1>[^"\n]+)"|'(?P<v2>[^'\n]+)'|(?P<v3>[^\s"'`;|&<>(){},\\-][^\s"'`;|&<>(){},\\]*))"#;

/// All of them.
pub(super) const RULES: &[Rule] = &[
    // ── where it stands: headers, cookies, URLs
    rule(
        Plausible,
        "RFC 9110 §11.6.2",
        r#"(?i)authorization\\?["']?[ \t]*[:=,][ \t]*\\?["'`]?(?:[a-z][a-z0-9-]{2,20}[ \t]+)?\\?(?P<v3>[^\s"'`,;\\<>{}$%()=]+=*)(?:[\s"'`,;\\<>)]|$)"#,
        &[
            "Authorization: Bearer ‹{w40}›",
            r#"curl -H "Authorization: ApiKey ‹{a60}==›" https://x.example"#,
            r#"req.Header.Set("Authorization", "Bearer ‹{a40}›")"#,
            "Authorization: Bearer ${TOKEN}",
            "Send an Authorization: Bearer header with each request",
        ],
    ),
    rule(
        Plausible,
        "RFC 6750 §2.1",
        r#"(?i)(?-u:\b)bearer[ \t]+(?P<v3>[a-z0-9._~+/=-]{16,})"#,
        &[
            "token = \"Bearer ‹{a40}›\"",
            "Bearer only, Basic auth is off",
        ],
    ),
    rule(
        Plausible,
        "RFC 9110 §11.6.1: digest and AWS4 credentials are parameters",
        r#"(?i)authorization:[^\n]*?(?:response="|signature=)(?P<v3>[0-9a-f]{32,})"#,
        &["Authorization: Digest username=\"ada\", response=\"‹{h32}›\""],
    ),
    rule(
        Cookies,
        "RFC 6265 §4.2: Cookie",
        r#"(?i)(?:cookie:|--cookie[= \t]|-b)[ \t]*["']?(?P<v3>[^\s"';=]+=[^\s"';]*(?:;[ \t]*[^\s"';]+)*)"#,
        &[
            "Cookie: theme=dark; JSESSIONID=‹{h32}›",
            "Cookie: sid=‹{h32}›; theme=dark; session_token=‹{a32}›; a=b",
            "curl -b 'sessionid=‹{a32}›' https://x.example",
            "Cookie: theme=dark; lang=en",
        ],
    ),
    rule(
        Any,
        "RFC 3986 §3.2.1: userinfo; the last @ before the path counts",
        r#"(?i)(?:[a-z][a-z0-9+.-]{1,30}:)?//[^\s/@:"'`<>]*:(?P<v3>[^\s/"'`<>]+)@"#,
        &[
            "postgres://app:‹{p}›@db:5432/app",
            "redis://:‹{p}›@cache/0",
            "postgres://app:${PW}@db/app",
            "ssh://git@host/x.git",
        ],
    ),
    rule(
        Plausible,
        "a token in the place of the user: sentry.io, dev.azure.com, github.com",
        r#"(?i)[a-z][a-z0-9+.-]{1,30}://(?P<v3>[a-z0-9_-]{24,})(?::[a-z-]*)?@"#,
        &[
            "https://‹{h32}›@o1.ingest.sentry.io/2",
            "https://‹{a40}›:x-oauth-basic@github.com/a/b",
            "https://user@host/x",
        ],
    ),
    rule(
        Any,
        "docs.oracle.com: SQL*Plus and its kin, user/password@host",
        r#"(?:sqlplus|sqlldr|expdp|impdp|rman[ \t]+target)[ \t][^\n|;]*?[A-Za-z0-9_]+/(?P<v3>[^\s@/"']+)(?:@|[\s"']|$)"#,
        &["sqlplus scott/‹{p}›@orcl", "sqlplus / as sysdba"],
    ),
    rule(
        Any,
        "docs.oracle.com: JDBC thin, user/password@host",
        r#"(?i)jdbc:oracle:[a-z]+:[^\s/@]+/(?P<v3>[^\s@/]+)@"#,
        &["jdbc:oracle:thin:scott/‹{p}›@db:1521:xe"],
    ),
    rule(
        Plausible,
        "a URL's query or fragment",
        r#"(?i)[?&#](?:x-amz-security-token|x-amz-signature|x-goog-signature|signature|sig|appid|key|code|_vercel_share)=(?P<v3>[^\s"'`&#<>;]{16,})"#,
        &[
            "https://x.example/a?X-Amz-Signature=‹{h64}›&b=1",
            "https://x.example/a?key=short",
        ],
    ),
    rule(
        Plausible,
        "learn.microsoft.com: a shared access signature is a query of its own",
        r#"(?i)SharedAccessSignature=(?P<v3>[^\s"';]+)"#,
        &[
            "BlobEndpoint=https://x.example/;SharedAccessSignature=‹sv=2022-11-02&ss=b&sig={a43}%3D›",
        ],
    ),
    rule(
        Plausible,
        "api.slack.com/messaging/webhooks",
        r#"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<v3>[A-Za-z0-9/]{20,})"#,
        &["https://hooks.slack.com/services/‹T0A1B2C3D/B0A1B2C3D4/{a24}›"],
    ),
    rule(
        Plausible,
        "discord.com/developers: webhooks",
        r#"discord(?:app)?\.com/api(?:/v[0-9]+)?/webhooks/[0-9]+/(?P<v3>[A-Za-z0-9_-]{30,})"#,
        &["https://discord.com/api/webhooks/1234567890/‹{w68}›"],
    ),
    rule(
        Plausible,
        "zapier.com, hc-ping.com and office.com: the path is the secret",
        r#"(?:hooks\.zapier\.com/hooks/catch/[0-9]+/|hc-ping\.com/|webhook\.office\.com/webhookb2/|outlook\.office\.com/webhook/)(?P<v3>[A-Za-z0-9@/-]{5,}[A-Za-z0-9])"#,
        &["https://hc-ping.com/‹{h8}-{h8}›"],
    ),
    // ── where it stands: key blocks
    rule(
        Block,
        "RFC 7468 §10, RFC 4880 §6.2; line breaks may have become spaces",
        r#"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?:\r?\n[ \t]*(?:[>+#*|-][ \t]*)?|[ \t]+)(?P<v3>(?s:.+?))(?:[ \t]*\r?\n[ \t]*(?:[>+#*|-][ \t]*)?|[ \t]+)-----END [A-Z0-9 ]*PRIVATE KEY"#,
        &[
            "-----BEGIN EC PRIVATE KEY-----\n‹{a64}\n{a20}›\n-----END EC PRIVATE KEY-----\n\nwhat follows",
            "key: |\n  -----BEGIN PRIVATE KEY-----\n  ‹{a64}\n  {a20}›\n  -----END PRIVATE KEY-----\nother: 1",
            "> -----BEGIN PRIVATE KEY-----\n> ‹{a64}\n> {a20}›\n> -----END PRIVATE KEY-----\nwhat follows",
            "+-----BEGIN PRIVATE KEY-----\n+‹{a64}\n+{a20}›\n+-----END PRIVATE KEY-----\n what follows",
            "-----BEGIN PRIVATE KEY-----\n‹{a64}›\n    -----END PRIVATE KEY-----\n\nwhat follows",
            "-----BEGIN PRIVATE KEY----- ‹{a64} {a20}› -----END PRIVATE KEY----- what follows",
        ],
    ),
    rule(
        Block,
        "the same without its end: as long as lines are base64",
        r#"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----\r?\n[ \t]*(?P<v3>[A-Za-z0-9/][A-Za-z0-9+/=]{15,}(?:[ \t]*\r?\n[ \t]*[A-Za-z0-9+/=]{16,})*)"#,
        &["-----BEGIN OPENSSH PRIVATE KEY-----\n‹{a64}\n{a64}›\n\nand what follows stays"],
    ),
    rule(
        Any,
        "the same, escaped for JSON",
        r#"(?P<v3>-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----\\+n[^"'\s]+(?: [A-Z ]*PRIVATE KEY(?: BLOCK)?-----(?:\\+n)?)?)"#,
        &[r#"{"k": "‹-----BEGIN PRIVATE KEY-----\n{a40}\n-----END PRIVATE KEY-----\n›"}"#],
    ),
    rule(
        Any,
        "the.earth.li/~sgtatham/putty: Private-Lines",
        r#"Private-Lines: [0-9]+\r?\n(?P<v3>(?:[A-Za-z0-9+/=]+\r?\n?)+?)(?:\r?\nPrivate-MAC|\z)"#,
        &["Private-Lines: 1\n‹{a48}›\nPrivate-MAC: 0"],
    ),
    // ── where it stands: a name in one place, the value in another
    rule(
        Any,
        "kubernetes.io, 12factor: name and value as keys",
        r#"(?i)["']?(?:name|key)["']?[ \t]*[:=][ \t]*["']?[a-z0-9_.-]*(?:password|passwd|secret|token|api[_-]?key)["']?[ \t]*,?\s*["']?value["']?[ \t]*[:=][ \t]*{VALUE}"#,
        &[
            "- name: DB_PASSWORD\n  value: \"‹{p}›\"",
            r#"{"name": "DB_PASSWORD", "value": "‹{p}›"}"#,
            r#"<add key="ClearTextPassword" value="‹{p}›" />"#,
        ],
    ),
    rule(
        Any,
        "XML: an element that is named, or has a name",
        r#"(?i)<(?:[a-z0-9]+[ \t]+(?:name|key)=")?[a-z0-9_.:-]*(?:password|passwd|secret|token|api[_-]?key|passphrase)"?(?:[ \t]+[a-z:]+="[^"<>]*")*[ \t]*>(?:<!\[CDATA\[)?(?P<v3>[^<>\s]+?)(?:\]\]>)?</"#,
        &[
            r#"<property name="password">‹{p}›</property>"#,
            "<db.password>‹{p}›</db.password>",
            r#"<password type="plain">‹{p}›</password>"#,
            "<password><![CDATA[‹{p}›]]></password>",
            r#"<entry key="password">‹{p}›</entry>"#,
        ],
    ),
    rule(
        Plausible,
        "prose that tells it",
        r#"(?i)(?:^|[^a-z0-9_=.-])(?:(?:password|passphrase|token|api key|secret key|access key)(?: for [^\s:]+)?(?: is| was| to|:| →)?|(?:secret|pw)(?: is| was|:| →)) +["'`]?(?P<v3>[^\s"'`,;()<>{}]{9,}[^\s"'`,;()<>{}.:!?])"#,
        &[
            "The password is \"‹{p}›\".",
            "use password ‹{p}› for the demo user",
            "password manager: 1Password or Bitwarden",
            "kubectl get secret db-creds-7f9 -o yaml",
        ],
    ),
    rule(
        Plausible,
        "terraform variables: the default is the value",
        r#"(?i)variable "[a-z0-9_]*(?:password|secret|token|key)"[ \t]*\{[^}]*?default[ \t]*=[ \t]*"(?P<v1>[^"\n]+)""#,
        &[r#"variable "db_password" { default = "‹{p}›" }"#],
    ),
    rule(
        Plausible,
        "a user and a password in a call",
        r#"(?i)(?:auth[ \t]*=[ \t]*\(|login\()[ \t]*["'][^"'\n]+["'][ \t]*,[ \t]*["'](?P<v3>[^"'\n]+)["']"#,
        &[r#"requests.get(url, auth=("ada", "‹{p}›"))"#],
    ),
    rule(
        Plausible,
        "a setter",
        r#"(?i)set_?(?:password|token|secret|api_?key)\([ \t]*["'](?P<v3>[^"'\n]+)["']"#,
        &[r#"setPassword("‹{p}›")"#],
    ),
    // ── where it stands: commands
    rule(
        Any,
        "dev.mysql.com: -p and the password are one word",
        r#"(?:mysql|mysqldump|mysqladmin|mysqlimport|mysqlsh|mysqlcheck|mysqlpump|mariadb|mariadb-dump|mariadb-admin)(?-u:\b)[^\n|;]*?[ \t]['"]?-p(?:"(?P<v1>[^"\n]+)"|'(?P<v2>[^'\n]+)'|(?P<v3>[^\s"'`;|&<>(){}]+))"#,
        &[
            "mysql -uroot -p‹{p}› shop",
            "mysqldump -u root '-p‹{p}›' a > b",
            "mysql -u root -p",
            "mysql -p$PASS shop",
            "mysql -h db \\\n  -u root \\\n  -p‹{p}› shop",
        ],
    ),
    rule(
        Any,
        "dev.mysql.com: mysqladmin password",
        r#"(?:mysqladmin|mariadb-admin)(?-u:\b)[^\n|;]*?[ \t]password[ \t]+{VALUE}"#,
        &["mysqladmin -u root password '‹{p}›'"],
    ),
    rule(
        Any,
        "sshpass(1)",
        r#"sshpass[ \t]+(?:-v[ \t]+)?-p[ \t]*{VALUE}"#,
        &[
            "sshpass -p ‹{p}› ssh root@h",
            "sshpass -p‹{p}› ssh h",
            "sshpass -f ~/.pw ssh h",
        ],
    ),
    rule(
        Any,
        "curl(1), wget, httpie: user:password",
        r#"(?:curl|wget|http|https|xh|httpie|aria2c)[ \t][^\n|;]*?(?:-[a-zA-Z]*u|--user|--proxy-user|-U|-a|--auth)[= \t]*["']?[^\s:"'$<{]+:(?P<v3>[^\s"'`;|&<>]+)"#,
        &[
            "curl -u ada:‹{p}› https://x.example",
            "curl -uada:‹{p}› https://x.example",
            "curl --proxy-user ada:‹{p}› -x proxy:3128 https://x.example",
            "http -a ada:‹{p}› GET x.example/me",
            "curl -u \"${USER}:${PASS}\" https://x.example",
            "curl -u ada: https://x.example",
        ],
    ),
    rule(
        Any,
        "docs.docker.com, podman(1), helm: login -p",
        r#"(?:docker|podman|nerdctl|buildah|helm|oras|crane)[ \t][^\n|;]*?login[^\n|;]*?[ \t]-p[= \t]*{VALUE}"#,
        &[
            "docker login -p '‹{p}›' -u ada",
            "podman login -u ada -p ‹{p}› quay.io",
        ],
    ),
    rule(
        Any,
        "skopeo(1): credentials",
        r#"--(?:(?:src-|dest-)?creds|(?:basic-|proxy-)?auth)[= \t]["']?[^\s:"']+:(?P<v3>[^\s"'`;|&]+)"#,
        &[
            "skopeo copy --dest-creds=ada:‹{p}› dir:/a docker://b",
            "tool --basic-auth ada:‹{p}› sync",
        ],
    ),
    rule(
        Any,
        "redis.io: redis-cli -a",
        r#"redis-cli[ \t][^\n|;]*?(?:-a|--pass)[ \t]+{VALUE}"#,
        &[
            "redis-cli -h cache -a ‹{p}› ping",
            "redis-cli -h cache \\\n  -a ‹{p}› \\\n  ping",
            "redis-cli -a \"$PW\" ping",
        ],
    ),
    rule(
        Any,
        "sqlcmd, bcp, ipmitool(1), mosquitto_pub(1), zip(1): -P",
        r#"(?:sqlcmd|bcp|isql|ipmitool|mosquitto_[a-z]+|zip|unzip|zipcloak|osql|rpcclient)(?-u:\b)[^\n|;]*?[ \t]-P[ \t]*{VALUE}"#,
        &[
            "sqlcmd -S db -U sa -P ‹{p}› -Q 'select 1'",
            "zip -P ‹{p}› -r a.zip dir/",
        ],
    ),
    rule(
        Any,
        "mongodb.com, learn.microsoft.com (psexec, certutil, nuget): -p",
        r#"(?:mongo|mongosh|mongodump|mongorestore|mongoexport|mongoimport|mongostat|cqlsh|cypher-shell|rabbitmqadmin|conan|oc[ \t]+login|psexec(?:64)?|certutil|nuget|winrs|plink|pscp|az[ \t]+login|expo[ \t]+login|smbmap|evil-winrm|rdesktop)(?-u:\b)[^\n|;]*?[ \t]-(?:p|pw)[ \t]+{VALUE}"#,
        &[
            "mongosh -u root -p ‹{p}› db",
            "psexec \\\\srv -u A\\b -p ‹{p}› cmd",
            "certutil -f -p ‹{p}› -importpfx c.pfx",
        ],
    ),
    rule(
        Any,
        "ldapsearch(1) and its kin: -w",
        r#"ldap[a-z]+[ \t][^\n|;]*?[ \t]-w[ \t]*{VALUE}"#,
        &[
            "ldapsearch -x -D cn=admin -w ‹{p}› -b dc=x",
            "ldapadd -x -D cn=admin -W",
        ],
    ),
    rule(
        Any,
        "ssh-keygen(1): -N; schtasks: /rp; lftp(1): -u user,password",
        r#"(?:ssh-keygen[ \t](?:[^\n|;]*?[ \t])?-N|schtasks[ \t][^\n|;]*?[ \t]/rp|lftp[ \t][^\n|;]*?-u[ \t]*[^\s,]+,)[ \t]*{VALUE}"#,
        &[
            "ssh-keygen -t rsa -N ‹{p}› -f k",
            "ssh-keygen -p -P ‹{p}› -N ‹{p}› -f k",
            "lftp -u ada,‹{p}› ftp.example.com",
            "ssh-keygen -t ed25519 -N '' -f k",
        ],
    ),
    rule(
        Any,
        "7z(1), rar(1): -p and the password are one word",
        r#"(?:7z[arz]?|rar|unrar)[ \t]+[a-z][^\n|;]*?[ \t]-p(?P<v3>[^\s"'`;|&<>-][^\s"'`;|&<>]*)"#,
        &["7z a -p‹{p}› a.7z dir", "7z a -p a.7z dir"],
    ),
    rule(
        Any,
        "openssl-passphrase-options(1)",
        r#"(?-u:\b)pass:["']?(?P<v3>[^\s"'`;|&<>]+)"#,
        &[
            "openssl rsa -in k.pem -passin pass:‹{p}› -out k2.pem",
            "openssl enc -pass pass:'‹{p}›' -in a",
            "openssl rsa -passin env:PW -in k",
        ],
    ),
    rule(
        Any,
        "openssl-enc(1): -k",
        r#"openssl[ \t]+enc[^\n|;]*?[ \t]-k[ \t]+{VALUE}"#,
        &["openssl enc -aes-256-cbc -d -in a -k ‹{p}›"],
    ),
    rule(
        Any,
        "htpasswd(1): -b",
        r#"htpasswd[ \t]+-[a-zA-Z]*b[a-zA-Z]*[ \t]+(?:[^\s"'-][^\s"']*[ \t]+)?[^\s"']+[ \t]+{VALUE}[ \t]*(?:\n|$)"#,
        &[
            "htpasswd -b .htpasswd ada ‹{p}›",
            "htpasswd -nbB ada '‹{p}›'",
        ],
    ),
    rule(
        Any,
        "smbclient(1): user%password",
        r#"(?:-U|--user=?)[ \t]*["']?[^\s%"']+%(?P<v3>[^\s"']+)"#,
        &["smbclient //srv/share -U ada%‹{p}›"],
    ),
    rule(
        Any,
        "a pipe into what reads a password",
        r#"(?:echo|printf)[ \t]+(?:-n[ \t]+|'%s(?:\\n)?'[ \t]+)?{VALUE}[ \t]*\|[ \t]*(?:sudo[ \t]+-S|(?:sudo[ \t]+)?(?:kinit|cryptsetup|(?:docker|podman)[ \t]+secret[ \t]+create|wrangler[ \t]+secret|gcloud[ \t]+secrets)|(?:[a-z]+[ \t]+)*?(?:login|passwd)[^\n|]*?--?(?:password-)?stdin)"#,
        &[
            "echo \"‹{p}›\" | docker login -u ada --password-stdin",
            "echo '‹{p}›' | sudo -S ls",
            "echo -n '‹{p}›' | sudo cryptsetup open /dev/sda1 x -",
            "printf '‹{p}›' | docker secret create db_pw -",
            "echo \"$TOKEN\" | gh auth login --with-token",
        ],
    ),
    rule(
        Any,
        "redis.io: requirepass, masterauth",
        r#"(?i)(?:requirepass|masterauth)[ \t]+{VALUE}"#,
        &["CONFIG SET requirepass \"‹{p}›\""],
    ),
    rule(
        Plausible,
        "redis.io: AUTH",
        r#"(?:^|[\s>])AUTH[ \t]+(?:[a-z]+[ \t]+)?(?P<v3>[^\s"']{6,})"#,
        &["AUTH default ‹{a32}›", "AUTH is required"],
    ),
    rule(
        Any,
        "SQL: CREATE or ALTER USER, GRANT",
        r#"(?i)(?:password|identified[ \t]+by|identified[ \t]+with[ \t]+[a-z0-9_]+[ \t]+by|secret|key_id)(?:[ \t]+|[ \t]*\([ \t]*)(?:'(?P<v2>[^'\n]+)'|"(?P<v1>[^"\n]+)")"#,
        &[
            "CREATE USER app WITH PASSWORD '‹{p}›';",
            "GRANT ALL ON a.* TO b IDENTIFIED BY \"‹{p}›\";",
            "SET PASSWORD FOR 'a'@'%' = PASSWORD('‹{p}›');",
            "KeyError: 'password'",
        ],
    ),
    rule(
        Plausible,
        "SQL: INSERT INTO users (…, password) VALUES",
        r#"(?i)insert[ \t]+into[^(\n]*\([^)\n]*password[ \t]*\)[ \t]*values[ \t]*\([^)\n]*'(?P<v2>[^'\n]+)'[ \t]*\)"#,
        &["INSERT INTO users (name, password) VALUES ('ada', '‹{p}›');"],
    ),
    rule(
        Plausible,
        "config set NAME value, in a dozen tools",
        r#"(?i)(?:env|set|setx|setenv|put|config|add)[ \t]+(?:--?[a-z-]+[ \t]+)*["']?[a-z0-9_./:@-]*(?:password|passwd|secret|token|[_.:-]key|(?:api|secret|private|access)key|_auth)["']?[ \t]+{VALUE}"#,
        &[
            "aws configure set aws_secret_access_key ‹{a40}› --profile ci",
            "pulumi config set --secret dbPassword ‹{p}›",
            "dotnet user-secrets set \"Db:Password\" \"‹{p}›\"",
            "git config --global user.password ‹{p}›",
            "git config user.signingkey {x16}",
            "setx API_TOKEN ‹{a40}›",
            "ENV DB_PASSWORD ‹{p}›",
            "etcdctl put /app/password ‹{p}›",
        ],
    ),
    rule(
        Plausible,
        "rclone.org, aws: the key's name, then the key",
        r#"(?i)(?-u:\b)(?:aws_)?secret_access_key[ \t]+{VALUE}"#,
        &["rclone config create r s3 secret_access_key ‹{a40}›"],
    ),
    rule(
        Plausible,
        "getcomposer.org, python-poetry.org: http-basic; pypi-token",
        r#"(?:http-basic|pypi-token)\.[^\s]+[ \t]+(?:[^\s"']+[ \t]+)?{VALUE}"#,
        &[
            "composer config http-basic.repo.example.com ada ‹{a40}›",
            "poetry config http-basic.acme ada ‹{p}›",
        ],
    ),
    rule(
        Any,
        "cli.github.com, developers.cloudflare.com: secret set --body",
        r#"secrets?[ \t]+(?:set|put|create)[ \t][^\n|;]*?(?:--body|--value|-b)[= \t]*{VALUE}"#,
        &[
            "gh secret set DB_PASSWORD --body ‹{p}› --repo a/b",
            "gh secret set K -b\"‹{a40}›\"",
        ],
    ),
    rule(
        Plausible,
        "rabbitmqctl(8), net user, wpa_passphrase(8), minio: a name, then the password",
        r#"(?:change_password|add_user|net user|sp_addlogin|wpa_passphrase|alias set [^\s]+ [^\s]+|net use [^\s]+)[ \t]+["']?[^\s"'/]+["']?,?[ \t]+{VALUE}"#,
        &[
            "rabbitmqctl change_password ada ‹{p}›",
            "net user ada ‹{p}› /add",
            "wpa_passphrase Office ‹{p}›",
        ],
    ),
    rule(
        Plausible,
        "netrc(5), nmcli(1)",
        r#"(?:login[ \t]+[^\s]+|connect[ \t]+[^\s]+|anonymous)\s+password[ \t]+{VALUE}"#,
        &[
            "machine x.example login ada password ‹{p}›",
            "nmcli dev wifi connect Office password ‹{p}›",
        ],
    ),
    rule(
        Plausible,
        "ngrok.com, wandb.ai, vaultproject.io, snyk.io: the argument is the token",
        r#"(?:authtoken|add-authtoken|wandb[ \t]+login|vault[ \t]+login|vault[ \t]+operator[ \t]+unseal|bw[ \t]+unlock|snyk[ \t]+auth|cargo[ \t]+login|flyctl[ \t]+auth[ \t]+token|netlify[ \t]+login)[ \t]+{VALUE}"#,
        &[
            "ngrok config add-authtoken ‹{a27}_{a21}›",
            "wandb login ‹{h40}›",
            "vault operator unseal ‹{a44}›",
            "vault login -method=oidc",
        ],
    ),
    rule(
        Plausible,
        "kubectl create secret --from-literal",
        r#"secret[ \t][^\n|;]*?--from-literal[= \t]["']?[^\s=]+=["']?(?P<v3>[^\s"'`;|&]+)"#,
        &["kubectl create secret generic x --from-literal=foo=‹{a32}›"],
    ),
    rule(
        Any,
        "learn.microsoft.com: ConvertTo-SecureString",
        r#"(?i)ConvertTo-SecureString[ \t]+(?:-String[ \t]+)?{VALUE}"#,
        &[
            "ConvertTo-SecureString \"‹{p}›\" -AsPlainText -Force",
            "ConvertTo-SecureString $pw -AsPlainText",
        ],
    ),
    rule(
        Plausible,
        "cmdkey, runas, wmic, xfreerdp(1): /password:",
        r#"(?i)[ \t]/(?:p|pass|password|pw|token):(?P<v3>[^\s"'=]+)(?:[\s"']|$)"#,
        &[
            "cmdkey /add:srv /user:ada /pass:‹{p}›",
            "xfreerdp /u:ada /p:‹{p}› /v:h",
            "msbuild /p:Password=$PW",
        ],
    ),
    rule(
        Plausible,
        "useradd(8), aws ssm: the value of a secure parameter",
        r#"(?:useradd[ \t][^\n|;]*?-p|--type[ \t]+SecureString[^\n|;]*?--value|--otp|-A[ \t]+bearer[ \t]+-a)[ \t]+{VALUE}"#,
        &["aws ssm put-parameter --name /a --type SecureString --value '‹{p}›'"],
    ),
    rule(
        Plausible,
        "expect(1): what is sent after the prompt",
        r#"(?i)expect[ \t]+"[^"\n]*password[^"\n]*"[;\s]+send[ \t]+"(?P<v3>[^"\\\n]+)"#,
        &["expect \"password:\"; send \"‹{p}›\\r\""],
    ),
    rule(
        Plausible,
        "postgresql.org: the password file",
        r#"(?m)^[a-z0-9.*-]+:(?:[0-9]+|\*):[^\s:]+:[^\s:]+:(?P<v3>[^\s:]+)$"#,
        &["db.internal:5432:app:ada:‹{p}›"],
    ),
    rule(
        Plausible,
        "a user and a password, told",
        r#"(?i)(?:creds?|credentials?|log ?in)(?: are| with| as|:|=)?[ \t]*[a-z0-9_.@-]+[ \t]?[:/][ \t]?(?P<v3>[^\s"'`,;]+)"#,
        &["creds are admin:‹{p}›"],
    ),
    rule(
        Plausible,
        "a default in a shell's parameter",
        r#"\$\{[A-Za-z0-9_]*(?i:password|secret|token|key):-(?P<v3>[^\s{}$"']+)\}"#,
        &["echo \"${SECRET:-‹{a24}›}\""],
    ),
    rule(
        Plausible,
        "learn.microsoft.com: AuthenticationHeaderValue",
        r#"AuthenticationHeaderValue\([ \t]*"[A-Za-z]+",[ \t]*"(?P<v3>[^"\n]+)""#,
        &["Authorization = new AuthenticationHeaderValue(\"Bearer\", \"‹{a40}›\");"],
    ),
    rule(
        Plausible,
        "vercel.com, codecov.io: -t; chocolatey.org: -k",
        r#"(?:vercel|codecov|choco[ \t]+push)[ \t][^\n|;]*?-[tk][ \t]+{VALUE}"#,
        &["vercel deploy --prod -t ‹{a24}›", "codecov -t ‹{a24}›"],
    ),
    rule(
        Any,
        "chpasswd(8): user:password on its standard input",
        r#"(?:echo|printf)[ \t]+["']?[^\s:"']+:(?P<v3>[^\s"'|]+)["']?[ \t]*\|[ \t]*(?:sudo[ \t]+)?chpasswd"#,
        &[
            "echo 'ada:‹{p}›' | sudo chpasswd",
            "echo \"ada:$PW\" | chpasswd",
        ],
    ),
    rule(
        Any,
        "bash(1): a here-string for what reads a password",
        r#"(?:kinit|cryptsetup|passwd|login)(?-u:\b)[^\n|;]*<<<[ \t]*{VALUE}"#,
        &["kinit ada <<< '‹{p}›'", "kinit ada <<< \"$PW\""],
    ),
    rule(
        Plausible,
        "docs.oracle.com: IDENTIFIED BY takes a bare word",
        r#"(?i)identified[ \t]+by[ \t]+(?P<v3>[^\s"'`;,()]+)"#,
        &["ALTER USER app IDENTIFIED BY ‹{p}›;"],
    ),
    rule(
        Any,
        "zetetic.net: PRAGMA key; redis.io: ACL SETUSER >password",
        r#"(?i)(?:pragma[ \t]+(?:re)?key[ \t]*=[ \t]*["']|acl[ \t]+setuser[ \t][^\n]*?[ \t]>)(?P<v3>[^\s"';]+)"#,
        &[
            "PRAGMA key = '‹{p}›';",
            "ACL SETUSER ada on >‹{p}› ~* +@all",
        ],
    ),
    rule(
        Plausible,
        "kickstart: rootpw",
        r#"rootpw[ \t]+(?:--plaintext[ \t]+)?(?P<v3>[^\s-][^\s]*)"#,
        &["rootpw --plaintext ‹{p}›", "rootpw --lock"],
    ),
    rule(
        Plausible,
        "names that say a secret only where the value is hexadecimal: sonar.login, AppRole's secret_id, PagerDuty",
        r#"(?:sonar\.login|secret_id|routing_key)["']?[ \t]*[:=][ \t]*["']?(?P<v3>[a-f0-9-]{32,40})(?-u:\b)"#,
        &["sonar.login=‹{h40}›", "routing_key: orders.created"],
    ),
    rule(
        Plausible,
        "a label, with what it is about, in bold or in a table's row",
        r#"(?i)(?:^|[^a-z0-9_=.-])(?:(?:password|passwort|passphrase|kennwort|token|secret|api key|mot de passe)(?:[ \t]*\([^)\n]{1,30}\)[ \t]*:|[ \t]+is[ \t]*:|:\*\*|[ \t]:|[ \t]+lautet:?)|(?:unseal|recovery) key [0-9]+:|\|[ \t]*(?:password|token|secret)[ \t]*\|)[ \t]*["'`]?(?P<v3>[^\s"'`,;()<>{}|]{7,}[^\s"'`,;()<>{}|.:!?])"#,
        &[
            "Password (prod): ‹{p}›",
            "Your token is: ‹{a30}›",
            "**Password:** ‹{p}›",
            "| password | ‹{p}› |",
            "Unseal Key 1: ‹{a44}›",
            "mot de passe : ‹{p}›",
            "Token (optional): see below",
            "cat token | sha256sum",
        ],
    ),
    rule(
        Plausible,
        "the same, in Japanese",
        r#"パスワードは[ \t]*(?P<v3>[!-~]{6,})"#,
        &["パスワードは‹{p}›です"],
    ),
    rule(
        Any,
        "developer.apple.com: a property list's key and string",
        r#"(?i)<key>[a-z0-9_.-]*(?:password|token|secret|api_?key)</key>\s*<string>(?P<v3>[^<\n]+)</string>"#,
        &["<key>password</key>\n<string>‹{p}›</string>"],
    ),
    rule(
        Any,
        "a value before its name",
        r#"(?i)"value"[ \t]*:[ \t]*"(?P<v3>[^"\n]+)"[ \t]*,\s*"(?:name|key)"[ \t]*:[ \t]*"[a-z0-9_.-]*(?:password|passwd|secret|token|api[_-]?key)""#,
        &[r#"{"value": "‹{p}›", "name": "DB_PASSWORD"}"#],
    ),
    rule(
        Plausible,
        "a builder's setter; a fallback where the environment has none",
        r#"(?i)(?:\.(?:api_?key|password|(?:access|auth)_?token|client_?secret|secret_?key)\([ \t]*|(?:password|secret|token|key)["'\])]*[ \t]*(?:\|\||\?\?)[ \t]*)["'](?P<v3>[^"'\n]+)["']"#,
        &[
            "client.apiKey(\"‹{a32}›\")",
            "const token = process.env.TOKEN || '‹{a32}›'",
            "const token = process.env.TOKEN ?? 'none'",
        ],
    ),
    rule(
        Plausible,
        "core.telegram.org, infura.io, alchemy.com: the key is in the path",
        r#"(?:api\.telegram\.org/bot|infura\.io/(?:ws/)?v3/|alchemy(?:\.com|api\.io)/v2/)(?P<v3>[A-Za-z0-9:_-]{20,})"#,
        &[
            "https://api.telegram.org/bot‹{d10}:AA{w33}›/getMe",
            "https://mainnet.infura.io/v3/‹{h32}›",
        ],
    ),
    rule(
        Plausible,
        "httpd.apache.org, nginx.org: the header as an argument",
        r#"(?i)authorization[ \t]+["'](?:bearer|basic)[ \t]+(?P<v3>[^\s"']+)["']"#,
        &["RequestHeader set Authorization \"Basic ‹{a40}›\""],
    ),
    rule(
        Plausible,
        "C's preprocessor, Emacs Lisp: a name, then the value in quotes",
        r#"(?i)(?:#define|\((?:setq|defvar|def))[ \t]+[a-z0-9_-]*(?:password|secret|token|api[_-]?key)[ \t]+"(?P<v3>[^"\n]+)""#,
        &["#define API_KEY \"‹{a30}›\"", "(setq api-key \"‹{a30}›\")"],
    ),
    rule(
        Any,
        "snmpcmd(1): -A; a rule of its own for each flag finds both",
        r#"snmp[a-z]+[ \t](?:[^\n|;]*?[ \t])?-A[ \t]+{VALUE}"#,
        &["snmpwalk -v3 -u ada -A ‹{p}› -X ‹{p}› h"],
    ),
    rule(
        Any,
        "snmpcmd(1): -X",
        r#"snmp[a-z]+[ \t](?:[^\n|;]*?[ \t])?-X[ \t]+{VALUE}"#,
        &["snmpget -X ‹{p}› h", "snmpget -X \"$PW\" h"],
    ),
    rule(
        Any,
        "ssh-keygen(1): -P, the old passphrase",
        r#"ssh-keygen[ \t](?:[^\n|;]*?[ \t])?-P[ \t]*{VALUE}"#,
        &["ssh-keygen -p -P ‹{p}› -N ‹{p}› -f k"],
    ),
    // ── what its issuer shaped
    rule(
        Token,
        "RFC 7519: a JSON web token",
        r"(?P<v3>eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,})",
        &["got ‹eyJ{a20}.eyJ{a30}.{w43}›"],
    ),
    rule(
        Token,
        "docs.github.com: token formats",
        r"(?P<v3>gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})",
        &["(‹ghp_{a36}›)", "ghp_ tokens", "myghp_{a36}"],
    ),
    rule(
        Token,
        "docs.gitlab.com: token prefixes",
        r"(?P<v3>(?:glpat|gldt|glrt|glrtr|glcbt|glptt|glft|glimt|glagent|gloas|glsoat|glffct)-[A-Za-z0-9_.-]{16,})",
        &["‹glpat-{w20}›", "glpat-<token>"],
    ),
    rule(
        Token,
        "docs.aws.amazon.com: unique ids of access keys",
        r"(?P<v3>(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16})(?:[^A-Z0-9]|$)",
        &["key id ‹AKIA{x16}› is", "AKIA prefixes"],
    ),
    rule(
        Token,
        "docs.aws.amazon.com: Bedrock keys, session tokens",
        r"(?P<v3>ABSK[A-Za-z0-9+/=]{60,}|(?:IQoJb3JpZ2lu|FwoGZXIvYXdz)[A-Za-z0-9+/=]{60,})",
        &["‹ABSK{a126}==›"],
    ),
    rule(
        Token,
        "api.slack.com: token types",
        r"(?P<v3>xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{10,}|xapp-[0-9]-[A-Za-z0-9-]{10,})",
        &[
            "‹xoxb-{d12}-{d12}-{a24}›",
            "xoxb and xoxp",
            "xoxb-your-token-here",
        ],
    ),
    rule(
        Token,
        "stripe.com: keys",
        r"(?P<v3>(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/=]{20,})",
        &["‹sk_live_{a24}›", "pk_live_{a24}", "sk_test_..."],
    ),
    rule(
        Token,
        "platform.openai.com, anthropic.com, openrouter.ai, deepseek.com",
        r"(?P<v3>sk-[A-Za-z0-9_-]{20,})",
        &[
            "‹sk-proj-{w74}›",
            "‹sk-ant-api03-{w93}›",
            "risk-adjusted-return-on-capital-model-v2",
        ],
    ),
    rule(
        Token,
        "elevenlabs.io",
        r"(?P<v3>sk_[a-f0-9]{48})",
        &["‹sk_{h48}›"],
    ),
    rule(
        Token,
        "cloud.google.com: API keys, OAuth",
        r"(?P<v3>AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,}|1//0[A-Za-z0-9_-]{30,})",
        &["‹AIza{w35}›", "‹GOCSPX-{w28}›"],
    ),
    rule(
        Token,
        "docs.npmjs.com, pypi.org, rubygems.org, crates.io, nuget.org, clojars.org",
        r"(?P<v3>npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{50,}|rubygems_[a-f0-9]{48}|cio[A-Za-z0-9]{32}|oy2[a-z0-9]{43}|CLOJARS_[a-z0-9]{60})",
        &[
            "‹npm_{a36}›",
            "npm_lifecycle_event=test",
            "‹rubygems_{h48}›",
        ],
    ),
    rule(
        Token,
        "huggingface.co, replicate.com, groq.com, x.ai, perplexity.ai, tavily.com and other model hosts",
        r"(?P<v3>(?:hf|api_org)_[A-Za-z0-9]{30,}|r8_[A-Za-z0-9]{30,}|gsk_[A-Za-z0-9]{40,}|xai-[A-Za-z0-9]{40,}|pplx-[A-Za-z0-9]{30,}|tvly-[A-Za-z0-9-]{20,}|lsv2_(?:pt|sk)_[A-Za-z0-9_]{30,}|jina_[A-Za-z0-9_-]{30,}|fc-[a-f0-9]{32}|nvapi-[A-Za-z0-9_-]{40,}|e2b_[a-f0-9]{40}|csk-[a-z0-9]{40,}|pa-[A-Za-z0-9_-]{40,})",
        &["‹hf_{a34}›", "hf_hub_download fails", "‹gsk_{a52}›"],
    ),
    rule(
        Token,
        "docs.digitalocean.com, linode.com, fly.io, render.com, railway.com, heroku.com, netlify.com, vercel.com, supabase.com, neon.tech",
        r"(?P<v3>do[opr]_v1_[a-f0-9]{64}|fo1_[A-Za-z0-9_-]{40,}|fm[12][ar]?_[A-Za-z0-9+/=_-]{60,}|rnd_[A-Za-z0-9]{28,}|HRKU-[A-Za-z0-9_-]{30,}|nf[pcuo]_[A-Za-z0-9]{36}|vc[pkiar]_[A-Za-z0-9]{24,}|sbp_[a-f0-9]{40}|sb_secret_[A-Za-z0-9_-]{20,}|napi_[a-z0-9]{40,})",
        &["‹dop_v1_{h64}›", "dapi and dop are prefixes"],
    ),
    rule(
        Token,
        "shopify.dev, squareup.com, easypost.com, shippo.com, flutterwave.com, plaid.com, paystack.com",
        r"(?P<v3>shp(?:at|ca|pa|ss|tka)_[a-fA-F0-9]{32}|sq0[a-z]{3}-[A-Za-z0-9_-]{22,}|EAAA[A-Za-z0-9_-]{50,}|EZ[AT]K[A-Za-z0-9]{54}|shippo_(?:live|test)_[a-f0-9]{40}|FLW(?:SECK|PUBK)(?:_TEST)?-[a-f0-9A-Za-z]{12,}-X|access-(?:sandbox|development|production)-[a-f0-9-]{36}|EAA[A-Za-z0-9]{80,})",
        &["‹shpat_{h32}›", "‹EZAK{a54}›"],
    ),
    rule(
        Token,
        "sendgrid.com, mailgun.com, mailchimp.com, brevo.com, postmark, twilio.com",
        r"(?P<v3>SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{30,}|key-[a-f0-9]{32}|[a-f0-9]{32}-us[0-9]{1,2}|xkeysib-[a-f0-9]{64}-[A-Za-z0-9]{16}|SK[a-f0-9]{32})",
        &["‹SG.{w22}.{w43}›", "‹key-{h32}›"],
    ),
    rule(
        Token,
        "docs.docker.com, swarm, openshift, kubernetes age keys",
        r"(?P<v3>dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,}|SWMTKN-1-[a-z0-9]{40,}-[a-z0-9]{20,}|sha256~[A-Za-z0-9_-]{43}|AGE-SECRET-KEY-1[A-Z0-9]{58})",
        &["‹dckr_pat_{w27}›", "‹sha256~{w43}›"],
    ),
    rule(
        Token,
        "hashicorp.com: vault and terraform",
        r"(?P<v3>hv[sbr]\.[A-Za-z0-9_-]{20,}|[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{60,})",
        &["‹hvs.{w95}›", "hvs.xxxxxxxx"],
    ),
    rule(
        Token,
        "atlassian.com, figma.com, linear.app, notion.so, airtable.com, asana.com, clickup.com, postman.com, typeform.com",
        r"(?P<v3>AT[ACSB]TT3[A-Za-z0-9_=-]{50,}|ATBB[A-Za-z0-9]{28,}|fig[dou]r?_[A-Za-z0-9_-]{40,}|lin_(?:api|oauth)_[A-Za-z0-9]{40,}|ntn_[A-Za-z0-9]{40,}|secret_[A-Za-z0-9]{43}|pat[A-Za-z0-9]{14}\.[a-f0-9]{64}|pk_[0-9]{6,9}_[A-Z0-9]{32}|PMAK-[a-f0-9]{24}-[a-f0-9]{34}|tfp_[A-Za-z0-9_.-]{40,})",
        &["‹lin_api_{a40}›", "‹ntn_{a46}›"],
    ),
    rule(
        Token,
        "grafana.com, newrelic.com, datadog, sentry.io, dynatrace.com, honeycomb, launchdarkly.com, sumo",
        r"(?P<v3>gl(?:sa|c)_[A-Za-z0-9_+/=-]{32,}|NR(?:AK|RA|JS|SP|II|IQ|AA)-[A-Za-z0-9_-]{20,}|sntry[su]_[A-Za-z0-9_=+/-]{40,}|dt0[a-z][0-9]{2}\.[A-Z0-9]{24}\.[A-Z0-9]{64}|(?:api|sdk|mob)-[a-f0-9]{8}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{12}|hcaik_[a-z0-9]{50,}|phx_[A-Za-z0-9]{40,})",
        &["‹glsa_{a32}_{h8}›"],
    ),
    rule(
        Token,
        "databricks.com, pulumi.com, planetscale.com, confluent, snowflake, clickhouse.com, prefect.io",
        r"(?P<v3>dapi[a-f0-9]{32}(?:-[0-9])?|pul-[a-f0-9]{40}|pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.-]{30,}|4b1d[A-Za-z0-9]{38}|pn[ub]_[A-Za-z0-9]{36})",
        &["‹dapi{h32}›", "‹pul-{h40}›"],
    ),
    rule(
        Token,
        "sonarqube.org, sourcegraph.com, jfrog.com, harness.io, buildkite.com, circleci.com, codecov",
        r"(?P<v3>sq[upa]_[a-f0-9]{40}|sgp_(?:[a-f0-9]{16}_|local_)?[a-f0-9]{40}|AKCp[A-Za-z0-9]{60,}|cmVmdGtuOj[A-Za-z0-9]{50,}|(?:pat|sat)\.[A-Za-z0-9_-]{22}\.[a-f0-9]{24}\.[A-Za-z0-9]{20}|bk(?:ua|ca|pt)_[a-z0-9]{40}|CCIP(?:AT|RJ)_[A-Za-z0-9_]{40,})",
        &["‹squ_{h40}›"],
    ),
    rule(
        Token,
        "doppler.com, 1password.com, tailscale.com, infracost.io, typesense, contentful.com, readme.com",
        r"(?P<v3>dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,}|ops_eyJ[A-Za-z0-9_-]{100,}|tskey-[a-z]+-[A-Za-z0-9-]{20,}|ico-[A-Za-z0-9]{32}|CFPAT-[A-Za-z0-9_-]{43}|rdme_[a-z0-9]{70}|dnkey-[A-Za-z0-9=_-]{20,}|p8e-[a-z0-9]{32}|tk-us-[A-Za-z0-9_-]{48}|v1\.0-[a-f0-9]{24}-[a-f0-9]{146})",
        &["‹dp.pt.{a43}›", "‹tskey-auth-{a20}›"],
    ),
    rule(
        Token,
        "mapbox.com, yandex.cloud, alibabacloud.com, tencent",
        r"(?P<v3>sk\.eyJ[A-Za-z0-9_-]{40,}\.[A-Za-z0-9_-]{20,}|AQVN[A-Za-z0-9_-]{35,}|YC[A-Za-z0-9_-]{38}|LTAI[A-Za-z0-9]{12,20}|AKID[A-Za-z0-9]{32})",
        &["‹LTAI{a20}›"],
    ),
    rule(
        Token,
        "pinecone.io, lob.com, razorpay.com, resend.com, adafruit.io, axiom.co, rootly.com, duffel.com, Microsoft Entra",
        r"(?P<v3>pcsk_[A-Za-z0-9_]{40,}|(?:live|test)_[a-f0-9]{35}|rzp_(?:live|test)_[A-Za-z0-9]{14,}|re_[A-Za-z0-9]{8}_[A-Za-z0-9]{20,}|aio_[A-Za-z0-9]{28}|xaa[tp]-[a-f0-9]{8}-[a-f0-9-]{27}|rootly_[a-f0-9]{40,}|duffel_(?:live|test)_[A-Za-z0-9_-]{40,}|[A-Za-z0-9_.~-]{3}[78]Q~[A-Za-z0-9_.~-]{31,34})",
        &[
            "‹pcsk_{a60}›",
            "‹re_{a8}_{a24}›",
            "re_use_the_connection",
            "\u{1b}[33m‹ghp_{a36}›\u{1b}[0m",
            "a%20‹ghp_{a36}›",
        ],
    ),
    rule(
        Token,
        "core.telegram.org, discord.com: bot tokens",
        r"(?P<v3>[0-9]{8,10}:AA[A-Za-z0-9_-]{32,33}|[MNO][A-Za-z0-9]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40})",
        &["tried ‹{d10}:AA{w33}›, got a 401"],
    ),
];
