-- Stop a bulk operation: the jobs that it has changed stay changed, and it changes no more. False: it has ended, or
-- there is none.
create or replace function stepwell.stop_bulk(_id uuid) returns boolean
language plpgsql volatile security definer
as $$
begin
  -- It waits for a chunk in progress.
  update stepwell.bulk b set state = 'stopped', finished_at = stepwell.now() where b.id = _id and b.state = 'running';
  return found;
end
$$;
