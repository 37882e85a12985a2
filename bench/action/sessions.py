"""Sessions of agents, made by script: failures that a note covers or not, and calls of every day.

A family is a failure as tools print it, with a note as people and agents write one; `{…}` are filled anew for the note and for each time
that it happens: paths, numbers, times, hashes, hosts. The families below `AFTER` were written when the code was done, and nothing of it
was changed for them.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Final

_WORDS: Final = {
    "path": [
        "/home/ann/shop/src/app.py",
        "/srv/build/7f/main.ts",
        "C:\\\\work\\\\shop\\\\index.js",
        "/app/lib/db/pool.rb",
        "./pkg/api/x.go",
    ],
    "file": ["src/app.py", "web/main.ts", "lib/pool.rb", "pkg/api/handler.go", "crates/core/src/lib.rs"],
    "number": ["3", "17", "208", "4096", "65001"],
    "port": ["5432", "8010", "6379", "3000", "9200"],
    "time": ["2026-11-20T08:12:44Z", "2026-11-28 21:03:09.112", "10:02:51", "2026-12-01T00:00:00+01:00"],
    "hex": ["0x7ffd12ab", "3f9c12ab77de", "deadbeef01", "a94a8fe5ccb19ba6"],
    "host": ["localhost", "db.internal", "10.0.0.12", "redis-2.prod.example.org"],
    "ms": ["1203ms", "5000 ms", "12.7s"],
}

FAMILIES: Final[list[tuple[str, str, str]]] = [
    (
        "pytest -q tests/api",
        'E   sqlalchemy.exc.OperationalError: (psycopg2.OperationalError) connection to server at "{host}", port {port} failed: Connection refused',
        '`sqlalchemy.exc.OperationalError: (psycopg2.OperationalError) connection to server at "localhost", port 5432 failed: Connection refused` means that the test database is down: `docker compose up -d db` first.',
    ),
    (
        "npm run build",
        "{path}({number},{number}): error TS2742: The inferred type of 'router' cannot be named without a reference to '{file}'.",
        "TS2742 in the web build: two copies of @types/react; run `npm dedupe`.",
    ),
    (
        "pnpm install --frozen-lockfile",
        ' ERR_PNPM_OUTDATED_LOCKFILE  Cannot install with "frozen-lockfile" because pnpm-lock.yaml is not up to date with {path}',
        "ERR_PNPM_OUTDATED_LOCKFILE: somebody used npm. `pnpm install --no-frozen-lockfile` and commit the lockfile.",
    ),
    (
        "cargo build",
        "error[E0502]: cannot borrow `pool` as mutable because it is also borrowed as immutable\n  --> {path}:{number}:{number}",
        "E0502 on the pool: clone the handle before the loop, the borrow lives until the end of the block.",
    ),
    (
        "alembic upgrade head",
        "alembic.util.exc.CommandError: Can't locate revision identified by '{hex}'",
        "\"alembic.util.exc.CommandError: Can't locate revision identified by '3f2a'\": the branch was rebased; `alembic stamp head` on the laptop, never on staging.",
    ),
    (
        "make test",
        "ModuleNotFoundError: No module named 'psycopg2'",
        "ModuleNotFoundError: No module named 'psycopg2' - install psycopg2-binary, the wheel needs no libpq.",
    ),
    (
        "node server.js",
        "Error: listen EADDRINUSE: address already in use :::{port}",
        "`Error: listen EADDRINUSE: address already in use :::3000`: the old dev server is still running, `lsof -ti :3000 | xargs kill`.",
    ),
    (
        "docker compose up",
        "Error response from daemon: driver failed programming external connectivity on endpoint shop-db-{number} ({hex}): Bind for 0.0.0.0:{port} failed: port is already allocated",
        "```\nError response from daemon: driver failed programming external connectivity on endpoint shop-db-1\n```\nA local postgres holds the port: `brew services stop postgresql`.",
    ),
    (
        "git push",
        "remote: error: GH006: Protected branch update failed for refs/heads/main.",
        "GH006: main is protected, push a branch and open a pull request.",
    ),
    (
        "git push",
        "error: failed to push some refs to 'github.com:shop/api.git'\nhint: Updates were rejected because the tip of your current branch is behind",
        '"Updates were rejected because the tip of your current branch is behind": `git pull --rebase`, never force.',
    ),
    (
        "kubectl apply -f k8s",
        'error: unable to recognize "{path}": no matches for kind "Ingress" in version "extensions/v1beta1"',
        '`no matches for kind "Ingress" in version "extensions/v1beta1"`: the chart is too old for the cluster, use networking.k8s.io/v1.',
    ),
    (
        "terraform apply",
        "Error: Error acquiring the state lock\nLock Info:\n  ID: {hex}",
        "Error: Error acquiring the state lock: CI died in the middle; ask Lena, then `terraform force-unlock`.",
    ),
    (
        "yarn build",
        "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory",
        "`FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory`: NODE_OPTIONS=--max-old-space-size=4096.",
    ),
    (
        "go test ./...",
        "panic: runtime error: invalid memory address or nil pointer dereference\n[signal SIGSEGV: segmentation violation code=0x1 addr={hex}]",
        '"panic: runtime error: invalid memory address or nil pointer dereference" in the handler tests: SetupSuite was not called, embed suite.Suite.',
    ),
    (
        "psql -f seed.sql",
        'ERROR:  duplicate key value violates unique constraint "orders_number_key"\nDETAIL:  Key (number)=({number}) already exists.',
        "`duplicate key value violates unique constraint \"orders_number_key\"`: reset the sequence after the seed: select setval('orders_number_seq', ...).",
    ),
    (
        "pip install -r requirements.txt",
        "ERROR: Could not find a version that satisfies the requirement torch==2.9.9 (from versions: none)",
        "`ERROR: Could not find a version that satisfies the requirement torch` - Python 3.14 has no wheels yet, use 3.11.",
    ),
    (
        "ruff check .",
        "{file}:{number}:{number}: PLR0915 Too many statements ({number} > 50)",
        "PLR0915: split the function, we don't raise the limit.",
    ),
    (
        "mypy src",
        '{file}:{number}: error: Incompatible types in assignment (expression has type "Optional[User]", variable has type "User")  [assignment]',
        '`error: Incompatible types in assignment (expression has type "Optional[User]", variable has type "User")`: use get_or_404 in views.',
    ),
    (
        "npx playwright test",
        "Error: browserType.launch: Executable doesn't exist at {path}",
        '"browserType.launch: Executable doesn\'t exist": `npx playwright install chromium` once after an update.',
    ),
    (
        "docker build .",
        'ERROR: failed to solve: process "/bin/sh -c apt-get update" did not complete successfully: exit code: 100',
        '`ERROR: failed to solve: process "/bin/sh -c apt-get update" did not complete successfully` happens behind the VPN; build with --network=host.',
    ),
    (
        "redis-cli ping",
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
        "`MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk`: the volume is full, prune images.",
    ),
    (
        "pytest tests/test_checkout.py",
        "FAILED tests/test_checkout.py::test_checkout_timeout - asyncio.exceptions.TimeoutError: fake clock did not advance after {ms}",
        "fixed `asyncio.exceptions.TimeoutError: fake clock did not advance`: each worker has its own clock now; mark the test xdist_group.",
    ),
    (
        "rails db:migrate",
        "ActiveRecord::PendingMigrationError: Migrations are pending. To resolve this issue, run: bin/rails db:migrate RAILS_ENV=test",
        "ActiveRecord::PendingMigrationError: Migrations are pending - run it for RAILS_ENV=test as well.",
    ),
    (
        "gradle build",
        "> Could not resolve com.acme:billing:{number}.\n   > Received status code 401 from server: Unauthorized",
        "`Received status code 401 from server: Unauthorized` from the Maven proxy: the token expires monthly, renew it in ~/.gradle/gradle.properties.",
    ),
    (
        "sudo systemctl start shop",
        "Job for shop.service failed because the control process exited with error code.",
        '"Job for shop.service failed because the control process exited with error code": the env file needs mode 0600.',
    ),
    (
        "aws s3 sync dist s3://shop",
        "An error occurred (ExpiredToken) when calling the ListObjectsV2 operation: The provided token has expired.",
        "`An error occurred (ExpiredToken) when calling the ListObjectsV2 operation`: `aws sso login --profile shop`.",
    ),
    (
        "ssh heron",
        "ssh: connect to host {host} port 22: Operation timed out\nkex_exchange_identification: read: Connection reset by peer",
        "kex_exchange_identification: read: Connection reset by peer - fail2ban; wait ten minutes or use the VPN. Quoted: `kex_exchange_identification: read: Connection reset by peer`",
    ),
    (
        "composer install",
        "Your requirements could not be resolved to an installable set of packages.",
        "`Your requirements could not be resolved to an installable set of packages`: composer 1 is on PATH, use `composer2`.",
    ),
    (
        "swift build",
        "{path}:{number}:{number}: error: cannot find 'Logger' in scope",
        "`error: cannot find 'Logger' in scope`: import os, and set the platform to macOS 13.",
    ),
    (
        "mix test",
        "** (DBConnection.ConnectionError) tcp connect ({host}:{port}): connection refused - :econnrefused",
        "`** (DBConnection.ConnectionError) tcp connect (localhost:5432): connection refused - :econnrefused`: start the sandbox database with mix ecto.create.",
    ),
    (
        "helm upgrade shop .",
        "Error: UPGRADE FAILED: another operation (install/upgrade/rollback) is in progress",
        "Error: UPGRADE FAILED: another operation (install/upgrade/rollback) is in progress: `helm rollback shop` and try again.",
    ),
    (
        "poetry install",
        "pyproject.toml changed significantly since poetry.lock was last generated. Run `poetry lock` to fix the lock file.",
        '"pyproject.toml changed significantly since poetry.lock was last generated": poetry lock with 2.1, older ones rewrite everything.',
    ),
    (
        "ansible-playbook site.yml",
        'fatal: [heron]: UNREACHABLE! => {{"changed": false, "msg": "Failed to connect to the host via ssh: Host key verification failed."}}',
        "`Failed to connect to the host via ssh: Host key verification failed`: heron was reinstalled, ssh-keygen -R heron.",
    ),
    (
        "flutter build apk",
        "FAILURE: Build failed with an exception.\nExecution failed for task ':app:processReleaseResources'.\nAAPT2_ERROR: check logs",
        "AAPT2_ERROR: the icon has an alpha channel; export it again.",
    ),
    (
        "bundle install",
        "Gem::Ext::BuildError: ERROR: Failed to build gem native extension.\nmkmf.rb can't find header files for ruby at {path}",
        "`mkmf.rb can't find header files for ruby at /usr/lib`: xcode-select --install.",
    ),
    (
        "prisma migrate deploy",
        "Error: P3009\nmigrate found failed migrations in the target database, new migrations will not be applied.",
        "P3009: `prisma migrate resolve --rolled-back NAME`, after looking at the table.",
    ),
    (
        "vite build",
        '[vite]: Rollup failed to resolve import "@shop/ui" from "{path}".',
        '`[vite]: Rollup failed to resolve import "@shop/ui"`: build the workspace first, pnpm -r build.',
    ),
    (
        "dotnet build",
        "{path}({number},{number}): error CS8618: Non-nullable property 'Name' must contain a non-null value",
        "CS8618: mark the property required.",
    ),
    (
        "javac Main.java",
        "error: class file has wrong version {number}.0, should be 61.0",
        "`class file has wrong version`: JAVA_HOME points to 21; use sdkman to take 17.",
    ),
    (
        "nginx -t",
        "nginx: [emerg] bind() to 0.0.0.0:80 failed (98: Address already in use)",
        "`nginx: [emerg] bind() to 0.0.0.0:80 failed (98: Address already in use)`: apache2 came back with the update, systemctl disable apache2.",
    ),
]
AFTER: Final[list[tuple[str, str, str]]] = [
    (
        "phpunit",
        "SQLSTATE[HY000] [2002] php_network_getaddresses: getaddrinfo for {host} failed: Name or service not known",
        "`SQLSTATE[HY000] [2002] php_network_getaddresses: getaddrinfo for db failed` means the tests run outside of the container; use bin/test.",
    ),
    (
        "cmake --build build",
        'CMake Error at CMakeLists.txt:{number} (find_package):\n  By not providing "FindProtobuf.cmake" in CMAKE_MODULE_PATH this project has asked CMake to find a package configuration file',
        '"By not providing "FindProtobuf.cmake" in CMAKE_MODULE_PATH" - protobuf is missing, apt install libprotobuf-dev.',
    ),
    (
        "sbt compile",
        "[error] {path}:{number}:{number}: value toJson is not a member of shop.Order",
        "`value toJson is not a member of shop.Order`: import spray.json.enrichAny.",
    ),
    (
        "deno task test",
        'error: Uncaught (in promise) PermissionDenied: Requires net access to "{host}:{port}", run again with the --allow-net flag',
        'PermissionDenied: Requires net access to "localhost:5432" - the task lacks --allow-net, since deno 2 asks in tests as well.',
    ),
    (
        "wrangler deploy",
        "✘ [ERROR] A request to the Cloudflare API (/accounts/{hex}/workers) failed.\n  Authentication error [code: 10000]",
        "fix for `Authentication error [code: 10000]`: the token needs Workers Scripts edit, not only read.",
    ),
    (
        "hugo",
        'Error: error building site: TOCSS: failed to transform "scss/main.scss" (text/x-scss). Check your Hugo installation; you need the extended version',
        '`TOCSS: failed to transform "scss/main.scss" (text/x-scss)`: install hugo extended.',
    ),
    (
        "sqlx migrate run",
        "error: migration {number} was previously applied but has been modified",
        '"migration 3 was previously applied but has been modified": line ends; .gitattributes must have *.sql text eol=lf.',
    ),
    (
        "bazel build //...",
        "ERROR: {path}: no such package '@rules_python//python': The repository '@rules_python' could not be resolved: Repository '@rules_python' is not defined",
        "`The repository '@rules_python' could not be resolved`: bazel 8 needs MODULE.bazel, set USE_BAZEL_VERSION=7.",
    ),
    (
        "vagrant up",
        "There was an error while executing `VBoxManage`, a CLI used by Vagrant. VERR_VMX_MSR_ALL_VMX_DISABLED",
        "VERR_VMX_MSR_ALL_VMX_DISABLED: virtualisation is off in the BIOS of the build box.",
    ),
    (
        "elm make src/Main.elm",
        "-- MODULE NOT FOUND -- {file}\n\nYou are trying to import a `Json.Decode.Pipeline` module:",
        "```\nYou are trying to import a `Json.Decode.Pipeline` module\n```\nelm install NoRedInk/elm-json-decode-pipeline",
    ),
    (
        "certbot renew",
        "Challenge failed for domain {host}\nType: unauthorized Detail: Invalid response from http://{host}/.well-known/acme-challenge/{hex}: 404",
        "certbot: `Type: unauthorized Detail: Invalid response from http://x/.well-known/acme-challenge/abc: 404` when nginx has no location for it; see conf.d/acme.conf.",
    ),
    (
        "rsync -a dist/ heron:/srv",
        "rsync: [sender] write error: Broken pipe (32)\nrsync error: error in rsync protocol data stream (code 12) at io.c({number})",
        "`rsync error: error in rsync protocol data stream (code 12) at io.c(226)`: the disk of heron is full again, prune /srv/releases.",
    ),
]
UNCOVERED: Final[list[tuple[str, str]]] = [
    ("pytest -q", "E   AssertionError: assert {number} == {number}"),
    ("npm test", "TypeError: Cannot read properties of undefined (reading 'map')"),
    ("ls /nope", "ls: cannot access '/nope': No such file or directory"),
    ("make lint", "make: *** [Makefile:{number}: lint] Error 1"),
    ("git commit -m x", "nothing to commit, working tree clean"),
    ("grep -rn foo src", ""),
    ("cargo test", "error[E0308]: mismatched types\n --> {path}:{number}:{number}"),
    ("python app.py", "ModuleNotFoundError: No module named 'requests'"),
    ("npm run build", "{path}({number},{number}): error TS2304: Cannot find name 'foo'."),
    ("curl http://{host}:{port}", "curl: (7) Failed to connect to {host} port {port}: Connection refused"),
    (
        "psql -c 'select 1'",
        'psql: error: connection to server failed: FATAL:  password authentication failed for user "ann"',
    ),
    ("docker ps", "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"),
]
CAUTIONS: Final = [
    "never run `prisma migrate reset` against staging: it drops the data",
    "`terraform apply` only from the main branch, the state is shared",
    "`src/billing/tax.py`: round per line, never per invoice, because the law says so",
    "don't edit `web/src/generated/`, it comes from the schema",
    "`bin/ship` needs the VPN, otherwise it hangs",
    "always run `alembic upgrade head` before `pytest tests/db`",
    "`config/production.yaml` must not have secrets: they come from the vault",
    "decided: `Dockerfile` stays on Debian, Alpine broke the PDF fonts",
]
_BENIGN: Final = {
    "Bash": [
        "ls -la",
        "git status",
        "git diff --stat",
        "pytest -q tests/unit",
        "npm test",
        "cat README.md",
        "rg TODO src",
        "git log --oneline -5",
        "docker compose ps",
        "make",
        "npm run lint",
        "python scripts/x.py",
        "git add -A && git commit -m 'x'",
        "terraform plan",
        "prisma generate",
        "npx prisma migrate dev",
        "alembic history",
        "pnpm install",
        "cargo check",
        "go vet ./...",
        "kubectl get pods",
        "head -50 {file}",
        "sed -n 1,80p {file}",
    ],
    "Edit": [
        "{file}",
        "src/models/user.py",
        "web/src/app.tsx",
        "docs/api.md",
        "tests/test_x.py",
        "src/billing/invoice.py",
        "config/development.yaml",
        "package.json",
    ],
    "Write": ["src/new_{number}.py", "notes/{number}.md", "web/src/components/Card{number}.tsx"],
}
_OUTPUTS: Final = [
    "",
    "ok",
    "{number} passed in {ms}",
    "On branch main\nnothing to commit",
    "{file}:{number}: TODO: rename",
    "Compiling shop v0.{number}.0",
    "warning: unused variable: `x`\n --> {path}:{number}",
    "0 errors, {number} warnings",
    "total {number}\n-rw-r--r-- 1 ann ann {number} {file}",
    "def fails():\n    raise ValueError('no such user')",
    "{time} INFO started on port {port}",
    "| id | error |\n| {number} | none |",
]


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed call. `note`: the text of the entry that covers it; "" for none."""

    command: str
    output: str
    note: str


def filled(text: str, chance: random.Random) -> str:
    """The text with each `{…}` chosen anew."""
    found = re.sub(r"\{(path|file|number|port|time|hex|host|ms)\}", lambda name: chance.choice(_WORDS[name[1]]), text)
    return found.replace("{{", "{").replace("}}", "}")


def failures(chance: random.Random, count: int, *, written_after: bool) -> list[Failure]:
    """Covered failures, each with noise before and after it."""
    families = AFTER if written_after else FAMILIES
    found = []
    for number in range(count):
        command, output, note = families[number % len(families)]
        before = "\n".join(filled(chance.choice(_OUTPUTS), chance) for _ in range(chance.randrange(12)))
        after = "\n".join(filled(chance.choice(_OUTPUTS), chance) for _ in range(chance.randrange(6)))
        colour = chance.random() < 0.2
        said = filled(output, chance)
        found.append(
            Failure(
                command,
                f"{before}\n{chr(27) + '[31m' if colour else ''}{said}{chr(27) + '[0m' if colour else ''}\n{after}",
                filled(note, chance),
            )
        )
    return found


def uncovered(chance: random.Random, count: int) -> list[Failure]:
    """Failures that no note covers."""
    return [
        Failure(filled(command, chance), filled(output, chance), "")
        for command, output in (UNCOVERED[number % len(UNCOVERED)] for number in range(count))
    ]


def benign(chance: random.Random, count: int) -> list[tuple[str, str, str]]:
    """Calls of every day: tool, command or path, output."""
    found = []
    for _ in range(count):
        tool = chance.choice(["Bash", "Bash", "Edit", "Write"])
        found.append((tool, filled(chance.choice(_BENIGN[tool]), chance), filled(chance.choice(_OUTPUTS), chance)))
    return found
