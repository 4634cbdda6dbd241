-- As stepwell.lock_to_hand_back: see stepwell.notify_done.
create or replace function stepwell.lock_to_give_back(_ids uuid[]) returns void
language sql volatile
as $$ select stepwell.lock_to_hand_back(_ids) $$;
