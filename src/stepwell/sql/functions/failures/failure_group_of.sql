-- The fingerprint of the group that a failure is counted in: its own or, if its task has too many groups to take
-- another one, that of the task's group for all other failures.
create or replace function stepwell.failure_group_of(_task text, _type text, _frame text) returns uuid
language plpgsql stable
as $$
declare
  _own uuid := stepwell.fingerprint(_task, _type, _frame);
  _other uuid;
begin
  if exists (select from stepwell.failure_group g where g.fingerprint = _own) then
    return _own;
  end if;
  _other := stepwell.fingerprint(_task, '(other)', null);
  if exists (select from stepwell.failure_group g where g.fingerprint = _other and g.is_full) then
    return _other;
  end if;
  return _own;
end
$$;
