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
    select g.fingerprint from stepwell.failure_group g
    where g.fingerprint = any (_fingerprints) and (
      g.state <> _state
      -- A failure that is yet to be added opens it again.
      or g.state = 'resolved'
        and exists (select from stepwell.failure_tally t where t.fingerprint = g.fingerprint and t.at > g.state_at)
    )
    order by g.fingerprint
    for no key update
  );
  update stepwell.failure_group g set state = _state, state_at = stepwell.now() where g.fingerprint = any (_changed);
  return _changed;
end
$$;
