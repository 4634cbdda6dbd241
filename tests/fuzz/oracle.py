"""What must hold when all is quiet: one query for each, which lists what does not, with all that is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, LiteralString

import psycopg
from psycopg import sql

AT_REST: Mapping[str, LiteralString] = {
    "a job is live and in history": """
        select j.id, j.state, j.epoch, h.state as ended_as, h.epoch as ended_epoch, h.finished_at, j.task
        from stepwell.job j join stepwell.history h on h.id = j.id""",
    "a bulk operation has counted wrong, or has ended without an end": """
        select b.id, b.act, b.state, b.finished_at, b.looked, b.done, b.skipped, b.failed, b.became from stepwell.bulk b
        where (b.state = 'running') <> (b.finished_at is null) or b.done + b.skipped + b.failed > b.looked
          or b.done <> (select coalesce(sum(e.value::bigint), 0) from jsonb_each_text(b.became) e)""",
    "a job is twice in history": """
        select h.id, count(*), array_agg(h.state), array_agg(h.epoch), array_agg(h.finished_at)
        from stepwell.history h group by h.id having count(*) > 1""",
    "a job runs under a worker that is not registered": """
        select j.id, j.task, j.queue, j.epoch, j.worker_id, j.claimed_at from stepwell.job j
        where j.worker_id is not null and not exists (select from stepwell.worker w where w.id = j.worker_id)""",
    "a job that runs has no worker, or one that does not has one": """
        select j.id, j.state, j.task, j.epoch, j.worker_id, j.claimed_at from stepwell.job j
        where (j.state = 'running') <> (j.worker_id is not null)""",
    "a job is due, and nobody makes it ready": """
        select j.id, j.state, j.task, j.queue, j.run_at, j.durable, j.awaits from stepwell.job j
        where j.state in ('scheduled', 'waiting') and j.run_at < stepwell.now() - interval '5 seconds'""",
    "a job that does not run is to be cancelled": """
        select j.id, j.state, j.task, j.epoch, j.reason from stepwell.job j
        where j.cancelling and j.state <> 'running'""",
    "a job waits for what has come": """
        select j.id, j.task, j.awaits, j.run_at, stepwell.timeline(j.id) from stepwell.job j
        where j.state = 'waiting' and j.awaits > (
          select count(distinct s.awaited) from stepwell.step s where s.job_id = j.id and s.pending)""",
    "a job waits for nothing": """
        select j.id, j.task, j.awaits, j.epoch, stepwell.timeline(j.id) from stepwell.job j
        where j.state = 'waiting' and j.run_at = 'infinity'
          and not exists (select from stepwell.step s where s.job_id = j.id and s.pending and s.awaited is not null)""",
    "a job waits for an event that is there": """
        select s.job_id, j.task, s.key, s.kind, s.event, s.event_key, s.until, e.id as event_id,
          e.emitted_at, e.expires_at, e.transaction
        from stepwell.job j
        join stepwell.step s on s.job_id = j.id and s.pending and s.awaited is not null
        join stepwell.event e on e.name = s.event and (
          s.kind = 'receive' and e.job_id = s.job_id
          or s.kind = 'wait' and e.job_id is null and e.key = s.event_key and e.expires_at > stepwell.now()
            and not exists (select from stepwell.step t where t.job_id = s.job_id and t.event_id = e.id))
        where j.state = 'waiting' and (s.until is null or e.emitted_at <= s.until)""",
    "a parent waits for a child that has ended": """
        select s.job_id, p.state, p.task, s.key, s.child_id, s.epoch, p.epoch as parent_epoch, h.state as child_state,
          h.finished_at
        from stepwell.step s
        join stepwell.job p on p.id = s.job_id
        left join stepwell.history h on h.id = s.child_id
        where s.pending and s.child_id is not null
          and not exists (select from stepwell.job c where c.id = s.child_id)""",
    "a step has no job": """
        select s.job_id, s.key, s.kind, s.child_id, s.pending, s.epoch, s.saved_at, h.state, h.epoch as ended_epoch,
          h.finished_at
        from stepwell.step s
        left join stepwell.history h on h.id = s.job_id
        where not exists (select from stepwell.job j where j.id = s.job_id)""",
    "a job has steps and is not durable": """
        select j.id, j.task, j.state, j.epoch, (select array_agg(s.key) from stepwell.step s where s.job_id = j.id)
        from stepwell.job j where not j.durable and exists (select from stepwell.step s where s.job_id = j.id)""",
    "a large value has no step": """
        select v.job_id, v.key, v.expires_at, octet_length(v.value::text) as bytes, j.state, h.state as ended_as
        from stepwell.large_value v
        left join stepwell.job j on j.id = v.job_id
        left join stepwell.history h on h.id = v.job_id
        where not exists (select from stepwell.step s where s.job_id = v.job_id and s.key = v.key and s.large)
          and not exists (select from stepwell.unfold(h.steps) s where s.key = v.key and s.large)
          -- One whose history was dropped a little before, or while the clock was ahead, goes at its own time.
          and (v.expires_at = 'infinity' or h.id is not null)""",
    "a large value is kept for ever though its job has ended, or not while it lives": """
        select v.job_id, v.key, v.expires_at, h.state, h.expires_at as job_expires_at from stepwell.large_value v
        left join stepwell.history h on h.id = v.job_id
        where case
          when exists (select from stepwell.job j where j.id = v.job_id) then v.expires_at <> 'infinity'
          else v.expires_at = 'infinity' and h.expires_at is distinct from 'infinity'
        end""",
    "a step has lost its large value": """
        select s.job_id, s.key, s.kind, s.epoch, s.saved_at from stepwell.step s
        where s.large and not s.pending
          and not exists (select from stepwell.large_value v where v.job_id = s.job_id and v.key = s.key)""",
    "a log line is of no job that is looked after": """
        select r.job_id, r.line, r.at from stepwell.run_log r
        where not exists (select from stepwell.run_log_head h where h.job_id = r.job_id)""",
    "a signal is for nobody": """
        select e.id, e.job_id, e.name, e.emitted_at, e.expires_at, h.state, h.finished_at,
          h.expires_at as job_expires_at
        from stepwell.event e
        left join stepwell.history h on h.id = e.job_id
        where e.job_id is not null and not exists (select from stepwell.job j where j.id = e.job_id)
          and (h.state = 'succeeded' or h.expires_at <> e.expires_at or h.id is null and e.expires_at = 'infinity')""",
    "a signal would outlive its job": """
        select e.id, e.job_id, e.name, e.emitted_at, e.expires_at, j.state, j.task, j.epoch, j.durable
        from stepwell.event e
        join stepwell.job j on j.id = e.job_id where not j.durable or e.expires_at <> 'infinity'""",
    "an event was taken twice by one job": """
        select s.job_id, s.event_id, array_agg(s.key), array_agg(s.kind) from stepwell.step s
        where s.event_id is not null and s.kind <> 'taken' group by 1, 2 having count(*) > 1""",
    "a failure is on record twice": """
        select f.job_id, f.epoch, count(*), array_agg(f.reason), array_agg(f.failed_at) from stepwell.failure f
        group by f.job_id, f.epoch having count(*) > 1""",
    "a failure is of a run that never was": """
        select f.job_id, f.epoch, f.attempt, f.reason, j.epoch as live_epoch, h.epoch as ended_epoch
        from stepwell.failure f
        left join stepwell.job j on j.id = f.job_id
        left join stepwell.history h on h.id = f.job_id
        where f.epoch > coalesce(j.epoch, h.epoch) or f.epoch < 1 or f.attempt > f.epoch or f.attempt < 1""",
    "a job failed, and no failure is on record": """
        select h.id, h.task, h.epoch, h.attempt, h.error, h.failed_step, h.finished_at, h.expires_at
        from stepwell.history h
        where h.state = 'failed' and h.expires_at > stepwell.now() + interval '1 day'
          and not exists (select from stepwell.failure f where f.job_id = h.id)
          -- Of several runs one may have failed that was kept for less, and another have undone it.
          and h.epoch = 1""",
    "attempts do not fit epochs": """
        select j.id, j.task, j.state, j.epoch, j.attempt from stepwell.job j
        where j.attempt not between 0 and j.epoch or (j.state = 'running' and j.attempt < 1)
        union all
        select h.id, h.task, h.state, h.epoch, h.attempt from stepwell.history h
        where h.attempt not between 0 and h.epoch""",
    "a run is blocked, and no run before it is live": """
        select j.id, j.task, j.schedule_id, j.scheduled_for, s.name, s.overlap from stepwell.job j
        left join stepwell.schedule s on s.id = j.schedule_id
        where j.state = 'blocked' and j.schedule_id is not null and not exists (
          select from stepwell.job o where o.schedule_id = j.schedule_id and o.state <> 'blocked')""",
    "all members of a group have ended, and the group has not": """
        select g.id, g.total, g.succeeded, g.failed, g.cancelled, g.then_id from stepwell.job_group g
        where g.finished_at is null and g.succeeded + g.failed + g.cancelled >= g.total""",
    "a group has lost a member, or counts one twice": """
        select g.id, g.added, g.total, g.succeeded, g.failed, g.cancelled, g.created_at from stepwell.job_group g
        where g.finished_at is null and g.added <> g.succeeded + g.failed + g.cancelled + (
          select count(*) from stepwell.job j where j.group_id = g.id)""",
    "a group has ended, and its callback does not start": """
        select g.id, g.finished_at, g.then_started, j.id as then_id, j.state, j.task
        from stepwell.job_group g join stepwell.job j on j.id = g.then_id
        where g.finished_at is not null and not g.then_started""",
    "a callback started before the end of its group": """
        select g.id, g.total, g.then_started, j.id as then_id, j.state
        from stepwell.job_group g left join stepwell.job j on j.id = g.then_id
        where g.finished_at is null and (g.then_started or j.state <> 'blocked')""",
    "the end of a member was not added to its group": """
        select t.id, t.group_id, t.succeeded, t.failed, t.cancelled, t.changes from stepwell.group_tally t""",
    "a permit is for a job that does not need it": """
        select p.key, p.rate, p.hold, p.job_id, j.state, h.state as ended_as from stepwell.permit p
        left join stepwell.job j on j.id = p.job_id
        left join stepwell.history h on h.id = p.job_id
        where j.id is null or j.state not in ('ready', 'running') and not (p.hold and not p.rate)""",
    "more jobs are admitted than their limit allows": """
        select p.key, count(*), min((r ->> 'most')::integer) as most from stepwell.permit p
        join stepwell.job j on j.id = p.job_id
        cross join lateral json_array_elements(j.admission -> 'limits') as r
        where r ->> 'key' = p.key and not p.rate
          and not exists (select from stepwell.key_setting s where s.key = p.key)
        group by p.key having count(*) > max((r ->> 'most')::integer)""",
    "a job is in line, and its limit has room": """
        select j.id, j.task, j.state, j.blocked_by, j.admission, j.run_at from stepwell.job j
        where j.blocked_by is not null and j.admission -> 'rates' is null
          and not exists (
            select from json_array_elements(j.admission -> 'limits') as r
            where coalesce(
                (select s.most from stepwell.key_setting s where s.key = r ->> 'key'), (r ->> 'most')::integer
              ) <= (select count(*) from stepwell.permit p where p.key = r ->> 'key' and not p.rate))""",
    "a job is in line that is not blocked, or that none blocks": """
        select j.id, j.task, j.state, j.blocked_by, j.admission from stepwell.job j
        where j.blocked_by is not null and (j.state <> 'blocked' or j.admission is null)""",
    "a tick was run twice": """
        select r.schedule_id, r.scheduled_for, array_agg(r.id), array_agg(r.state) from (
          select j.id, j.schedule_id, j.scheduled_for, j.state from stepwell.job j
          union all select h.id, h.schedule_id, h.scheduled_for, h.state from stepwell.history h) r
        where r.schedule_id is not null
        group by r.schedule_id, r.scheduled_for having count(distinct r.id) > 1""",
    "a worker's lease has ended, and it is still registered": """
        select w.id, w.host, w.pid, w.lease_until, w.renewed_at, w.lock_held from stepwell.worker w
        where w.lease_until < stepwell.now() - interval '5 seconds'""",
    "a control is for a worker that is gone": """
        select c.action, c.name, c.asked_at from stepwell.control c
        where c.scope = 'worker' and not exists (select from stepwell.worker w where w.id::text = c.name)""",
    "a job became ready, and the workers were not told where": """
        select r.job_id, r.place from fuzz.ready r
        where not exists (
          select from fuzz.told t
          where t.transaction = r.transaction and (t.place).queue = (r.place).queue
            and (t.place).rank = (r.place).rank and (t.place).run_at <= (r.place).run_at)""",
    "a session holds a lock for ever": """
        select l.classid, l.objid, l.mode, l.granted, a.pid, a.usename, a.application_name, a.state, a.query
        from pg_locks l left join pg_stat_activity a on a.pid = l.pid
        where l.locktype = 'advisory' and l.classid between 1937007980 and 1937007989
          and l.database = (select d.oid from pg_database d where d.datname = current_database())
          and not (l.classid = 1937007981 and exists (select from stepwell.worker w where w.number::oid = l.objid))""",
    "a session is idle in a transaction": """
        select a.pid, a.application_name, a.state, a.xact_start, a.query from pg_stat_activity a
        where a.datname = current_database() and a.state like 'idle in transaction%'
          and a.xact_start < clock_timestamp() - interval '5 seconds'""",
    "what has expired is still there": """
        select e.id, e.job_id, e.name, e.expires_at from stepwell.event e
        where e.expires_at < stepwell.now() - interval '1 minute'""",
}
"""At any time at which nothing runs and nothing is due."""

WHEN_EMPTY: Mapping[str, LiteralString] = {
    "a job is stuck": """
        select j.id, j.state, j.task, j.queue, j.run_at, j.epoch, j.attempt, j.worker_id, j.awaits, j.undoing,
          j.schedule_id, j.durable, j.parent_id, stepwell.timeline(j.id) as steps
        from stepwell.job j""",
    "a unique key is taken by a job that is not live": """
        select k.key, k.job_id, k.until_start, k.expires_at, h.state, h.finished_at from stepwell.unique_key k
        left join stepwell.history h on h.id = k.job_id
        where k.live and k.job_id <> '00000000-0000-0000-0000-000000000000'
          and not exists (select from stepwell.job j where j.id = k.job_id)""",
    "a live job has lost its unique key": """
        select j.id, j.task, j.state, j.epoch, j.admission, k.job_id as holder from stepwell.job j
        left join stepwell.unique_key k on k.key = j.admission #>> '{unique,key}'
        where j.admission #>> '{unique,conflict}' <> 'throttle'
          and ((j.admission #>> '{unique,until_start}')::boolean is not true or j.epoch = 0)
          and k.job_id is distinct from j.id and j.schedule_id is null""",
    "a permit is left": "select p.key, p.rate, p.job_id from stepwell.permit p",
    "a step is left": "select s.job_id, s.key, s.kind from stepwell.step s",
    "a witness is missing, or did not succeed": """
        select w.job_id, w.task, h.state, h.error, h.epoch, h.attempt from fuzz.witness w
        left join stepwell.history h on h.id = w.job_id
        where h.state is distinct from 'succeeded'""",
    "a transaction was not done exactly once": """
        select h.id, h.task, h.state, h.epoch, count(e.job_id) from stepwell.history h
        left join fuzz.effect e on e.job_id = h.id
        where h.task = 'witness_paid'
        group by h.id, h.task, h.state, h.epoch having count(e.job_id) <> 1""",
}
"""When all jobs have ended or were cancelled."""


def consult(conn: psycopg.Connection[Any], checks: Mapping[str, LiteralString]) -> dict[str, list[dict[str, Any]]]:
    """What does not hold, with what was found of it."""
    # As JSON, because Python knows no time that is infinite.
    found = {
        title: [row[0] for row in conn.execute(sql.SQL("select to_json(o) from ({}) o").format(sql.SQL(query)))]
        for title, query in checks.items()
    }
    return {title: rows for title, rows in found.items() if rows}
