-- Runs before the first migration: the schema itself and the record of what was applied.
create schema if not exists stepwell;
comment on schema stepwell is 'Stepwell: background jobs and durable steps. Made and changed by "stepwell migrate".';

create table if not exists stepwell.migration (
  version integer not null,
  name text not null,
  applied_at timestamptz not null default clock_timestamp(),
  constraint migration_pkey primary key (version)
);
comment on table stepwell.migration is 'The migrations applied to this schema; the highest version is the schema''s.';
comment on column stepwell.migration.version is 'The number in the file''s name.';
comment on column stepwell.migration.name is 'The file''s name.';
comment on column stepwell.migration.applied_at is 'When it was applied.';
