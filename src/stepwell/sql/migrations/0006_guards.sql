-- stepwell: compatible from 5
-- Guards against hostile or unlucky callers, and corrections. Functions and views are replaced after this file.

-- Rights.

create table stepwell.privilege (
  kind text not null,
  object text not null,
  name text not null,
  constraint privilege_pkey primary key (kind, object, name),
  constraint privilege_kind check (kind in ('everybody', 'producer', 'worker', 'viewer', 'operator')),
  constraint privilege_object check (object in ('function', 'view'))
);
comment on table stepwell.privilege is 'What each kind of role may do. Rewritten by each migration, from rights.sql; a function that is not listed is internal.';
comment on column stepwell.privilege.kind is 'producer, worker, viewer or operator; everybody: any role that may use the schema.';
comment on column stepwell.privilege.object is 'function: the kind may execute it; view: it may select from it.';
comment on column stepwell.privilege.name is 'The name of the function, without its parameters, or of the view.';

create table stepwell.grantee (
  role text not null,
  kind text not null,
  role_id oid not null,
  granted_at timestamptz not null default clock_timestamp(),
  constraint grantee_pkey primary key (role, kind),
  constraint grantee_kind check (kind in ('producer', 'worker', 'viewer', 'operator'))
);
comment on table stepwell.grantee is 'Which roles were granted what, by "stepwell grant". Each migration grants it again.';
comment on column stepwell.grantee.role is 'The name of the role.';
comment on column stepwell.grantee.kind is 'producer, worker, viewer or operator.';
comment on column stepwell.grantee.role_id is 'The oid of the role: a role made later under the same name is another one.';
comment on column stepwell.grantee.granted_at is 'When it was granted.';

-- Sizes and names.

create table stepwell.size_limit (
  name text not null,
  bytes bigint not null,
  constraint size_limit_pkey primary key (name),
  constraint size_limit_name check (name in ('args', 'metadata', 'event', 'signal', 'result', 'step', 'progress', 'job')),
  -- Functions look a limit up only for a text of more than 64 KiB. A message of Postgres ends at a gigabyte.
  constraint size_limit_bytes check (bytes between 65536 and 536870912)
);
comment on table stepwell.size_limit is 'How large a text may be, in bytes. The owner changes it by stepwell.set_size_limit, or "stepwell limits set".';
comment on column stepwell.size_limit.name is 'args and metadata of a job; event and signal: their values; result; step: the value or error of a step; progress; job: all that a worker is handed with one job (args, metadata, saved steps).';
comment on column stepwell.size_limit.bytes is 'The most bytes that are accepted, at least 65536.';
insert into stepwell.size_limit (name, bytes) values
  ('args', 1048576), ('metadata', 65536), ('event', 1048576), ('signal', 1048576), ('result', 1048576), ('step', 1048576),
  ('progress', 65536), ('job', 134217728);
comment on column stepwell.failure.reason is 'error, timeout, lease_lost, bad_args, bad_result; unreadable: what the job holds could not be handed to a worker; broken: its row does not allow it to go on.';

-- Names. A constraint holds for each row that is written from here on, also when an old one is changed: so what does not fit is
-- mended at once, while nobody else can write.
alter table stepwell.job add constraint job_names check (
  length(task) between 1 and 200 and length(queue) between 1 and 200 and length(reason) <= 10000
) not valid;
update stepwell.job j
set task = coalesce(nullif(left(j.task, 200), ''), 'unnamed'), queue = coalesce(nullif(left(j.queue, 200), ''), 'default'),
  reason = left(j.reason, 10000)
where length(j.task) not between 1 and 200 or length(j.queue) not between 1 and 200 or length(j.reason) > 10000;
alter table stepwell.schedule
  add constraint schedule_names check (
    length(owner) between 1 and 200 and length(name) between 1 and 200 and length(task) between 1 and 200
    and length(queue) between 1 and 200 and length(cron) <= 200 and length(tz) <= 200
  ) not valid,
  -- NaN is greater than any number.
  add constraint schedule_lengths check (every <= 3155760000 and jitter <= 3155760000) not valid;
update stepwell.schedule s
set owner = case when length(s.owner) between 1 and 200 then s.owner else left(s.owner, 160) || md5(s.owner) end,
  name = case when length(s.name) between 1 and 200 then s.name else left(s.name, 160) || md5(s.name) end,
  task = coalesce(nullif(left(s.task, 200), ''), 'unnamed'), queue = coalesce(nullif(left(s.queue, 200), ''), 'default'),
  cron = left(s.cron, 200), tz = left(s.tz, 200), every = least(s.every, 3155760000), jitter = least(s.jitter, 3155760000)
where not (
  length(s.owner) between 1 and 200 and length(s.name) between 1 and 200 and length(s.task) between 1 and 200
  and length(s.queue) between 1 and 200 and length(coalesce(s.cron, '')) <= 200 and length(coalesce(s.tz, '')) <= 200
  and coalesce(s.every, 0) <= 3155760000 and s.jitter <= 3155760000
);
-- What workers have written here was always shorter.
alter table stepwell.step add constraint step_names check (
  length(key) between 1 and 1000 and length(kind) between 1 and 50 and length(event) <= 200 and length(event_key) <= 200
) not valid;
alter table stepwell.stat add constraint stat_names check (
  length(task) between 1 and 200 and length(queue) between 1 and 200
) not valid;
-- Its result has more columns now.
drop function if exists stepwell.promote(integer);

-- Events and signals.
-- What is there was delivered when it was committed; the default is for what comes.
alter table stepwell.event add column delivered boolean not null default true;
alter table stepwell.event alter column delivered set default false;
comment on column stepwell.event.delivered is 'Another event of its transaction has brought this one to the jobs that wait for it.';
create index event_transaction on stepwell.event (transaction, id);
comment on index stepwell.event_transaction is 'Finds what else a transaction has emitted.';
alter table stepwell.event add column late xid8;
comment on column stepwell.event.late is 'Its delivery has to be repeated, until no transaction up to this one runs any more; 0: it has not been repeated yet; null: it need not be.';
alter table stepwell.event add column late_turn xid8 not null default '0';
comment on column stepwell.event.late_turn is 'The transaction that last repeated its delivery while many events were late: those with the lowest come first.';
create index event_late on stepwell.event (late_turn, id) where late is not null;
comment on index stepwell.event_late is 'Finds what stepwell.deliver_late has to deliver.';
alter table stepwell.event
  add column large boolean not null default false,
  add column kept_until timestamptz;
comment on column stepwell.event.large is 'Its value is over 64 KB: steps refer to it instead of copying it. Not set on events from before version 6.';
comment on column stepwell.event.kept_until is 'Its value is kept until then, for the history of jobs whose steps refer to it; null: there is none. It is not found by new waits for that.';
create index step_large_event on stepwell.step (event_id) where large and event_id is not null;
comment on index stepwell.step_large_event is 'Tells whether the value of an event is still referred to.';
alter table stepwell.job add column unsure smallint;
comment on column stepwell.job.unsure is 'While it waits: how often its waits were looked up while an event may have been on its way, so that they must be looked up again; null: they need not be.';

-- Leases and outcomes.

alter table stepwell.worker add column overdue_since timestamptz;
comment on column stepwell.worker.overdue_since is
  'A peer first found at this time that the lease had ended while the lock was held, as when the clock is set forward; null: it has renewed since.';

-- Schedules.

-- A run that ends asks whether another one goes, and which one waits first. One index answers both with one probe each;
-- jobs of no schedule are not in it, as before.
drop index stepwell.job_schedule;
create index job_schedule on stepwell.job ((state = 'blocked'), schedule_id, scheduled_for, id) where schedule_id is not null;
comment on index stepwell.job_schedule is
  'Finds the live runs of a schedule: first those that are not blocked, then the blocked ones in the order in which they go.';

-- Lives and attempts of a job.

alter table stepwell.job
  add column life integer not null default 0,
  add column steps_counted integer not null default 0;
alter table stepwell.history add column life integer not null default 0;
comment on column stepwell.job.life is 'How often the job has begun anew: by a restart, a retry from the start, or a retry after an undo. Random values differ from life to life.';
comment on column stepwell.job.steps_counted is 'How many steps had ended well when an attempt last failed. If there are more at the next failure, attempts are counted from 1 again.';
comment on column stepwell.history.life is 'As on the job.';
-- It has another parameter now.
drop function if exists stepwell.journal(uuid, text, json, json);
-- Its result has another column now.
drop function if exists stepwell.claim(uuid, text[], integer[], timestamptz[], uuid[], text[], integer, double precision[]);

-- Owners, and jobs whose arguments do not fit.
alter table stepwell.job add column owner text;
comment on column stepwell.job.owner is 'The app whose workers run it; null: any worker that knows the task.';
alter table stepwell.history add column owner text;
comment on column stepwell.history.owner is 'As on the job.';
alter table stepwell.worker add column named boolean;
comment on column stepwell.worker.named is 'Its app was given its name: it also claims the jobs of that owner. Null: it is of a version that claims the jobs of every owner.';
alter table stepwell.schedule add column named boolean not null default false;
comment on column stepwell.schedule.named is 'Its app was given its name: its jobs belong to that owner.';
alter table stepwell.job
  add column misfits integer[],
  add column misfit_until timestamptz,
  add column misfit_epoch integer,
  add column misfit text;
comment on column stepwell.job.misfits is 'The signatures of its task that its args did not fit: workers that have one of them leave it alone until misfit_until. Null: none.';
comment on column stepwell.job.misfit_until is 'For so long it waits for a worker that its args fit; then it fails.';
comment on column stepwell.job.misfit_epoch is 'The run that last found that they do not fit.';
comment on column stepwell.job.misfit is 'What did not fit.';
create index job_misfit on stepwell.job (state, task, misfits, queue, coalesce(owner, ''))
where misfits is not null and (state = 'ready' or state = 'scheduled' and run_at = misfit_until);
comment on index stepwell.job_misfit is 'Finds the jobs that wait for a worker that their args fit, and those of them that were made ready.';
alter table stepwell.worker add column signatures integer[];
comment on column stepwell.worker.signatures is 'Checksums of what its tasks take, one for each. Null: it is of a version that has none.';
-- They have more parameters now.
drop function if exists stepwell.snooze(uuid[], integer[], double precision[]);
drop function if exists stepwell.enqueue(text, json, text, integer, interval, timestamptz, jsonb, integer);
drop function if exists stepwell.enqueue_many(
  text[], text[], text[], integer[], double precision[], timestamptz[], text[], integer[]
);
drop function if exists stepwell.spawn(
  uuid[], integer[], text[], integer[], text[], text[], text[], integer[], double precision[], timestamptz[], text[],
  integer[]
);
drop function if exists stepwell.register_worker(
  text, integer, text, text[], text, integer, double precision, double precision, integer, text, text[], double precision
);
drop function if exists stepwell.put_schedules(
  text, boolean, text[], text[], text[], text[], integer[], text[], text[], double precision[], text[], integer[],
  double precision[], timestamptz[]
);

-- Counters.

alter table stepwell.stat
  add column suspended integer not null default 0,
  add column snoozed integer not null default 0,
  add column advanced integer not null default 0,
  add column restarted integer not null default 0,
  add column undone integer not null default 0,
  add column refused integer not null default 0;
comment on column stepwell.stat.handed_back is 'Runs that a shutdown stopped, or that their worker could not begin: they did not count. Workers of schema 5 count those that were snoozed here, too.';
comment on column stepwell.stat.suspended is 'Runs that ended to wait for a time, an event or children.';
comment on column stepwell.stat.snoozed is 'Runs whose handler raised Snooze.';
comment on column stepwell.stat.advanced is 'Runs of chains and machines that ended to go on later, or in another queue.';
comment on column stepwell.stat.restarted is 'Runs that returned Restart.';
comment on column stepwell.stat.undone is 'Runs that undid their job.';
comment on column stepwell.stat.refused is 'Runs whose outcome was not written, as the job was no longer theirs.';
-- It has more parameters now.
drop function if exists stepwell.add_stats(text[], text[], integer[], integer[], integer[], integer[], double precision[]);
