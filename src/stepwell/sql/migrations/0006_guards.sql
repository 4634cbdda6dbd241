-- Guards against hostile or unlucky callers, and corrections. Functions and views are replaced after this file.

-- Rights.

-- Sizes and names.

-- Events and signals.
-- What is there was delivered when it was committed; the default is for what comes.
alter table stepwell.event add column delivered boolean not null default true;
alter table stepwell.event alter column delivered set default false;
comment on column stepwell.event.delivered is 'Another event of its transaction has brought this one to the jobs that wait for it.';
create index event_transaction on stepwell.event (transaction, id);
comment on index stepwell.event_transaction is 'Finds what else a transaction has emitted.';
alter table stepwell.event add column late xid8;
comment on column stepwell.event.late is 'Its delivery has to be repeated, until no transaction up to this one runs any more; 0: it has not been repeated yet; null: it need not be.';
create index event_late on stepwell.event (late, id) where late is not null;
comment on index stepwell.event_late is 'Finds what stepwell.deliver_late has to deliver.';
create index history_default_expires on stepwell.history_default (expires_at);
create index failure_default_expires on stepwell.failure_default (expires_at);
comment on index stepwell.history_default_expires is 'Finds what has expired, should there be much in this partition.';
comment on index stepwell.failure_default_expires is 'Finds what has expired, should there be much in this partition.';
alter table stepwell.job add column unsure smallint;
comment on column stepwell.job.unsure is 'While it waits: how often its waits were looked up while an event may have been on its way, so that they must be looked up again; null: they need not be.';

-- Leases and outcomes.

-- Schedules.

-- Lives and attempts of a job.

-- Owners, and jobs whose arguments do not fit.

-- Counters.
