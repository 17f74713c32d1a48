"""The tables of the queue. Triggers number every change of a job, whoever makes it."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS clock (epoch TEXT NOT NULL, revision INTEGER NOT NULL);
INSERT INTO clock SELECT lower(hex(randomblob(4))), 0 WHERE NOT EXISTS (SELECT 1 FROM clock);
CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, state TEXT NOT NULL,
    held INTEGER NOT NULL DEFAULT 0, cancel INTEGER NOT NULL DEFAULT 0, position REAL NOT NULL,
    options TEXT NOT NULL, size INTEGER, received INTEGER NOT NULL DEFAULT 0,
    facts TEXT, looks INTEGER NOT NULL DEFAULT 0,
    stage TEXT NOT NULL DEFAULT '', done INTEGER NOT NULL DEFAULT 0, expected INTEGER,
    read INTEGER NOT NULL DEFAULT 0, rate REAL, error TEXT, warnings TEXT NOT NULL DEFAULT '[]',
    claim TEXT, worker TEXT,
    created REAL NOT NULL, started REAL, finished REAL,
    result TEXT, result_bytes INTEGER, preview TEXT, revision INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS jobs_by_state ON jobs (state, position);
CREATE INDEX IF NOT EXISTS jobs_by_revision ON jobs (revision);
CREATE TABLE IF NOT EXISTS removed (id TEXT PRIMARY KEY, revision INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS workers (name TEXT PRIMARY KEY, beat REAL NOT NULL);
CREATE TABLE IF NOT EXISTS runs (
    job TEXT NOT NULL, claim TEXT NOT NULL, finished REAL NOT NULL, model TEXT, speed REAL
);
CREATE TABLE IF NOT EXISTS deaths (
    job TEXT NOT NULL, crash INTEGER NOT NULL, reached INTEGER NOT NULL, further INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS speeds (model TEXT PRIMARY KEY, speed REAL NOT NULL);
CREATE TRIGGER IF NOT EXISTS job_added AFTER INSERT ON jobs BEGIN
    UPDATE clock SET revision = revision + 1;
    UPDATE jobs SET revision = (SELECT revision FROM clock) WHERE id = NEW.id;
END;
CREATE TRIGGER IF NOT EXISTS job_changed AFTER UPDATE ON jobs WHEN NEW.revision = OLD.revision BEGIN
    UPDATE clock SET revision = revision + 1;
    UPDATE jobs SET revision = (SELECT revision FROM clock) WHERE id = NEW.id;
END;
CREATE TRIGGER IF NOT EXISTS job_again AFTER UPDATE OF state ON jobs
WHEN OLD.state IN ('done', 'failed', 'cancelled') BEGIN
    DELETE FROM deaths WHERE job = OLD.id;
END;
CREATE TRIGGER IF NOT EXISTS job_forgotten AFTER DELETE ON jobs BEGIN
    DELETE FROM deaths WHERE job = OLD.id;
END;
CREATE TRIGGER IF NOT EXISTS job_removed AFTER DELETE ON jobs BEGIN
    UPDATE clock SET revision = revision + 1;
    INSERT OR REPLACE INTO removed VALUES (OLD.id, (SELECT revision FROM clock));
END;
"""
