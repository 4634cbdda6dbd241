-- Carry out the conflicts of items whose unique key is taken: those that are to replace or reschedule give the job that
-- has the key their args and options (stepwell.replace_jobs). _holders[k] is that job; null: there is no conflict. The
-- other parameters are those of the items, as in stepwell.enqueue_many, and _admissions has an element for each.
create or replace function stepwell.replace_taken(
  _now timestamptz,
  _holders uuid[],
  _admissions json[],
  _tasks text[],
  _args text[],
  _queues text[],
  _priorities integer[],
  _delays double precision[],
  _run_ats timestamptz[],
  _metadata text[],
  _max_attempts integer[],
  _owners text[],
  _policies text[]
) returns void
language plpgsql volatile
as $$
declare
  _changed record;
begin
  select array_agg(u.holder) as ids, array_agg(a.action = 'reschedule') as moves,
    array_agg(coalesce(u.task, _tasks[1])) as tasks, array_agg(u.args) as args,
    array_agg(coalesce(u.queue, case when cardinality(_queues) = 1 then _queues[1] end, 'default')) as queues,
    array_agg(-coalesce(u.priority, case when cardinality(_priorities) = 1 then _priorities[1] end, 0)) as ranks,
    array_agg(
      coalesce(
        _now + coalesce(u.delay, case when cardinality(_delays) = 1 then _delays[1] end) * interval '1 second',
        u.run_at, case when cardinality(_run_ats) = 1 then _run_ats[1] end, _now
      )
    ) as run_ats,
    array_agg(coalesce(u.metadata, case when cardinality(_metadata) = 1 then _metadata[1] end)) as metadata,
    array_agg(coalesce(u.max_attempts, case when cardinality(_max_attempts) = 1 then _max_attempts[1] end))
      as max_attempts,
    array_agg(coalesce(u.owner, case when cardinality(_owners) = 1 then _owners[1] end)) as owners,
    array_agg(coalesce(u.policy, _policies[1])) as policies
  into _changed
  from unnest(_holders, _admissions, _tasks, _args, _queues, _priorities, _delays, _run_ats, _metadata, _max_attempts,
      _owners, _policies)
    as u (holder, admission, task, args, queue, priority, delay, run_at, metadata, max_attempts, owner, policy)
  cross join lateral (select u.admission #>> '{unique,conflict}' as action) a
  where u.holder is not null and a.action in ('replace', 'reschedule');
  if _changed.ids is not null then
    perform stepwell.replace_jobs(
      _now, _changed.ids, _changed.moves, _changed.tasks, _changed.args, _changed.queues, _changed.ranks,
      _changed.run_ats, _changed.metadata, _changed.max_attempts, _changed.owners, _changed.policies
    );
  end if;
end
$$;
