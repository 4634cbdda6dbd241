-- The keys of the steps in a job's history that a retry keeps; see stepwell.retry. The steps of a chain or machine only
-- record its path, so they are kept; but a job that starts over may begin with another step than before.
create or replace function stepwell.kept_steps(_steps json, _failed_step text, _step text, _from_start boolean)
returns text[]
language sql stable
as $$
  with all_steps as materialized (select u.key, u.n, u.kind, u.pending, u.error from stepwell.unfold(_steps) u)
  select array_agg(a.key)
  from all_steps a
  where a.kind = 'taken' or a.kind = 'state' and not (_from_start and a.n = 1)
    or (
      not _from_start
      and not exists (select from all_steps b where b.kind = 'undo')
      and not (a.kind = 'child' and a.pending)
      and a.key is distinct from _failed_step
      and (a.error ->> 'anew') is null
      -- The attempts of the failed step and of the requested step are dropped.
      and (a.kind = 'retry' and starts_with(a.key, _failed_step || '~')) is not true
      and (a.kind = 'retry' and starts_with(a.key, _step || '~')) is not true
      and coalesce(a.n < (select b.n from all_steps b where b.key = _step), true)
    )
$$;
