-- Runs before the first migration: the schema and the table of applied migrations.
--
-- The advisory locks that stepwell takes, by their first key. Each database has its own.
--   1937007980, 0       shared: a process waits for results (waiter, release)
--   1937007981, number  a worker is alive (renew, rescue)
--   1937007983, 0       the schema is being migrated (migrate)
--   1937007984, hash    shared: an event of that name is delivered; exclusive: is looked up (deliver, take_events)
-- Any role that can connect can hold them. So nothing may depend on getting one, or wait for one without a limit.
--
-- "create schema if not exists" would need the right to create one even where the schema exists.
do $$
begin
  if to_regnamespace('stepwell') is null then
    create schema stepwell;
  end if;
end
$$;

create table if not exists stepwell.migration (
  version integer not null,
  name text not null,
  applied_at timestamptz not null default clock_timestamp(),
  constraint migration_pkey primary key (version)
);
-- Added with version 6.
alter table stepwell.migration add column if not exists compatible_from integer;
