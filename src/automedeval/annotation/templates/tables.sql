-- assignments: the state of each. Events up to the number `since` no longer count, after an undo. `closed` is the number of the
-- event that ended it, `opened` of the event that assigned or reopened it last (numbers, because a clock can be set back).
-- events, never changed and never deleted: "given", "answer", "skip", "undo".

CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS invitations (annotator TEXT PRIMARY KEY, digest TEXT NOT NULL UNIQUE, at DOUBLE NOT NULL);
CREATE TABLE IF NOT EXISTS assignments (
    id INTEGER PRIMARY KEY AUTOINCREMENT, item TEXT NOT NULL, kind TEXT NOT NULL, case_id TEXT NOT NULL, judges TEXT NOT NULL,
    annotator TEXT NOT NULL, slots TEXT NOT NULL, parts TEXT NOT NULL, state TEXT NOT NULL, version INTEGER NOT NULL,
    since INTEGER NOT NULL, opened INTEGER NOT NULL, closed INTEGER NOT NULL, touched_at DOUBLE NOT NULL,
    UNIQUE (annotator, kind, case_id));
CREATE INDEX IF NOT EXISTS assignments_by_state ON assignments (state, touched_at, item);
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, assignment INTEGER NOT NULL REFERENCES assignments (id), role TEXT NOT NULL,
    what TEXT NOT NULL, part TEXT NOT NULL, content TEXT NOT NULL, at DOUBLE NOT NULL);
CREATE INDEX IF NOT EXISTS ix_events_assignment ON events (assignment);
CREATE TABLE IF NOT EXISTS drafts (
    assignment INTEGER NOT NULL REFERENCES assignments (id), part TEXT NOT NULL, content TEXT NOT NULL,
    PRIMARY KEY (assignment, part));
