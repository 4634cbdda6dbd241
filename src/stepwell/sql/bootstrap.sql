-- Runs before the first migration: the schema itself and the record of what was applied.
--
-- Advisory locks that stepwell takes, by their first key; each database has its own.
--   1937007980, 0       shared: somebody waits for results (waiter, notify_done)
--   1937007981, number  a worker lives (renew, rescue)
--   1937007983, 0       the schema is being migrated (migrate)
--   1937007984, hash    shared: an event of that name is being delivered; else: is looked for (deliver, take_events)
-- Anybody who may connect can hold them. So nothing may depend on getting one, nor wait for one without a limit.
-- Not "if not exists", which asks for the right to create one even where there is nothing to create.
do $$
begin
  if to_regnamespace('stepwell') is null then
    create schema stepwell;
  end if;
end
$$;
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

-- Added with version 6.
alter table stepwell.migration add column if not exists compatible_from integer;
comment on column stepwell.migration.compatible_from is 'The oldest version whose code works with the schema after this migration; null: only code that knows this migration.';
