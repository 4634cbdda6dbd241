-- Save what branches of a running job wait for, although its attempt is about to end with the error of another branch:
-- meanwhile their time passes and events reach them, and the next attempt goes on with them. _wait is as in
-- stepwell.suspend. False: refused by the fence.
create or replace function stepwell.save_waits(_id uuid, _epoch integer, _wait text) returns boolean
language plpgsql volatile security definer
as $$
begin
  perform stepwell.check_isolation();
  if not stepwell.still_held(_id, _epoch) then
    return false;
  end if;
  update stepwell.job j set durable = true where j.id = _id and not j.durable;
  perform stepwell.begin_waits(array[_id], array[_epoch], array[_wait]);
  return true;
end
$$;
