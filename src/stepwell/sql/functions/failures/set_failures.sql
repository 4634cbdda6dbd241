-- Set the state of groups of failures: open, resolved or ignored. A resolved group is opened again by its next failure,
-- an ignored one stays ignored. Returns the groups that were in another state.
create or replace function stepwell.set_failures(_fingerprints uuid[], _state text) returns uuid[]
language plpgsql volatile security definer
as $$
declare
  _changed uuid[];
begin
  if _state is null or _state not in ('open', 'resolved', 'ignored') then
    raise exception using errcode = 'invalid_parameter_value',
      message = format(
        'stepwell: the state of a failure is %s: give open, resolved or ignored', coalesce(_state, 'null')
      );
  end if;
  _changed := array(
    -- The tallies are read once. Without an index, which each failure would have to maintain, a look for each group
    -- would read all of them.
    with pending as materialized (
      select t.fingerprint, max(t.at) as last_at from stepwell.failure_tally t
      where _state = 'resolved'
      group by t.fingerprint
    )
    select g.fingerprint from stepwell.failure_group g
    left join pending p on p.fingerprint = g.fingerprint
    -- A failure that is yet to be added opens it again.
    where g.fingerprint = any (_fingerprints) and (g.state <> _state or g.state = 'resolved' and p.last_at > g.state_at)
    order by g.fingerprint
    for no key update of g
  );
  update stepwell.failure_group g set state = _state, state_at = stepwell.now() where g.fingerprint = any (_changed);
  return _changed;
end
$$;
